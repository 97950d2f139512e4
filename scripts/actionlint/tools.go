//go:build tools

// Package actionlint pins the reader of GitHub's workflows that `make check` runs.
package actionlint

import _ "github.com/rhysd/actionlint/cmd/actionlint"
