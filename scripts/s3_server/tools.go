//go:build tools

// Package s3server pins the S3 server that the tests of object storage run against.
package s3server

import _ "github.com/versity/versitygw/cmd/versitygw"
