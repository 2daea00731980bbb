package members

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/store/s3/s3test"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// troubled is a server that now and then answers a write with a failure, in turn after it took place, before it, and as a conflict.
type troubled struct {
	http.Handler
	writes atomic.Int64
}

func (s *troubled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		s.Handler.ServeHTTP(w, r)
		return
	}
	switch s.writes.Add(1) % 9 {
	case 3:
		s.Handler.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusInternalServerError)
	case 5:
		w.WriteHeader(http.StatusServiceUnavailable)
	case 7:
		w.WriteHeader(http.StatusConflict)
	default:
		s.Handler.ServeHTTP(w, r)
	}
}

// Two coordinators with a bucket between them change the map at the same time: one after the other, and no change is lost, also where the
// bucket's answers do not say what became of a write.
func TestChangesThroughABucketFollowEachOther(t *testing.T) {
	for _, trouble := range []bool{false, true} {
		t.Run(fmt.Sprintf("trouble=%v", trouble), func(t *testing.T) {
			h := s3test.Handler(t)
			if trouble {
				h = &troubled{Handler: h}
			}
			o := s3test.Options(s3test.Serve(t, h))
			f := &fleet{}
			const coordinators, changes = 2, 12
			all := make([]*Cluster, coordinators)
			for i := range all {
				src := shardmap.NewStoreSource(s3test.Open(t, o))
				all[i] = open(t, Options{Dial: f.dial, Initial: groups(t, 2), Source: src, CallTimeout: 20 * time.Second})
				if ready(t, all[i]); all[i].Keeper() != "store" {
					t.Fatalf("kept by %s", all[i].Keeper())
				}
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			var made, uncertain uint64
			for i, c := range all {
				wg.Go(func() {
					for k := range changes {
						_, err := c.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) {
							switch {
							case m.Move == nil:
								return m.BeginMove(1, fmt.Sprintf("j%d-%d", i, k))
							case m.Move.Phase == shardmap.Preparing:
								return m.AbortMove()
							}
							return m.EndMove()
						})
						mu.Lock()
						switch {
						case err == nil:
							made++
						case errors.Is(err, shardmap.ErrUncertain) && trouble:
							uncertain++
						case !errors.Is(err, shardmap.ErrConflict) && !IsStale(err):
							t.Error(err)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			last := f.maps(t)[0].Epoch
			if made == 0 || !trouble && last != 1+made || last > 1+made+uncertain {
				t.Errorf("epoch %d after %d changes, and %d more perhaps", last, made, uncertain)
			}
			for _, c := range all {
				until(t, "all go by the last map", func() bool { return c.State().Epoch() == last })
			}
		})
	}
}
