//go:build tools

// Package tools pins the runner and the reader of GitHub's workflows that others wrote.
package tools

import (
	_ "github.com/nektos/act"
	_ "github.com/rhysd/actionlint/cmd/actionlint"
)
