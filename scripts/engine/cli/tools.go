//go:build tools

// Package engine pins the Pulumi CLI that scripts/setup builds where the official download is out of reach.
package engine

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
