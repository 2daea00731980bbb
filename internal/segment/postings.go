package segment

// BlockSize is the number of postings in a full block.
const BlockSize = 128

// Impact is a pair of term frequency and document length. The impacts of a block bound it: for every posting there is one with
// at least its frequency and at most its length.
type Impact struct {
	Freq uint32
	Len  uint16
}

// Postings is the list of one term in one segment or memtable.
type Postings struct{}

func (p *Postings) DocFreq() int                                                  { return 0 }
func (p *Postings) Blocks() int                                                   { return 0 }
func (p *Postings) LastDoc(b int) uint32                                          { return 0 }
func (p *Postings) SeekBlock(from int, doc uint32) int                            { return 0 }
func (p *Postings) Docs(b int, dst *[128]uint32) int                              { return 0 }
func (p *Postings) Freqs(b int, dst *[128]uint32)                                 {}
func (p *Postings) Impacts(b int, dst []Impact) []Impact                          { return dst }
func (p *Postings) HasPositions() bool                                            { return false }
func (p *Postings) Err() error                                                    { return nil }
func (p *Postings) Positions(b, i int, freqs *[128]uint32, dst []uint32) []uint32 { return dst }
