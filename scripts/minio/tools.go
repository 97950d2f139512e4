//go:build tools

// Package minio pins the S3 server that the tests of object storage run against.
package minio

import _ "github.com/minio/minio"
