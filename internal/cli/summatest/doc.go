// Package summatest runs the published Python client of Summa against processes of weft. It takes Python and the package registry, and
// so runs where WEFT_SUMMA_CLIENT is set.
package summatest
