package api

import _ "embed"

// OpenAPI is the OpenAPI 3.1 document of the HTTP surface. It must not be changed.
//
//go:embed openapi.json
var OpenAPI []byte
