// Package summatest runs clients of Summa against processes of weft: its own calls, and, where WEFT_SUMMA_CLIENT is set, since it takes
// Python and the package registry, the published Python client.
package summatest
