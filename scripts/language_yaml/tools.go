//go:build tools

// Package languageyaml pins Pulumi's host for programs in YAML, which the tests run.
package languageyaml

import _ "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"
