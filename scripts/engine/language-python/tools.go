//go:build tools

// Package languagepython pins the Python language host that scripts/setup builds beside the CLI.
package languagepython

import _ "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python"
