//go:build tools

// Package tools pins the runner of GitHub's workflows that others wrote.
package tools

import (
	_ "github.com/nektos/act"
)
