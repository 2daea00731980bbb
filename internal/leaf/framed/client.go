package framed

import (
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/wire/frame"
)

// Client is a leaf.Leaf that asks one address over framed JSON.
type Client struct {
	leaf.Leaf
	frames *frame.Client
}

var _ leaf.Leaf = (*Client)(nil)

// NewClient returns a leaf that sends its requests with c, which it closes in the end.
func NewClient(c *frame.Client) *Client { return &Client{frames: c} }
