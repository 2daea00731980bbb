package jobs

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestADocumentIsKeptFromThePrimaryBeforeItIsDeleted: a member has a document that its primary does not have. It may be on its way to the
// primary, whose answer must not be that nobody has looked.
func TestADocumentIsKeptFromThePrimaryBeforeItIsDeleted(t *testing.T) {
	for _, comes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pairs(t, 300)
			primary, other := f.at(addr(2, 0)), f.at(addr(2, 1))
			other.put("default", doc("ghost", 1))
			primary.setBefore(func(_ context.Context, call string) {
				if call == "Sync" && comes {
					primary.put("default", doc("ghost", 1))
				}
			})
			early := false
			other.setBefore(func(_ context.Context, call string) {
				early = early || call == "Sync" && primary.called("Sync") == 0
			})
			co := f.coordinator(Options{})
			defer co.shut(t)
			reply, err := co.Repair(t.Context(), false)
			if err != nil || !reply.OK || (reply.Removed == 0) != comes || reply.Copied != 0 {
				t.Errorf("it comes: %t: %+v, %v", comes, reply, err)
			}
			if early {
				t.Error("it was deleted before it was kept from the primary")
			}
			if comes {
				byID["ghost"] = doc("ghost", 1)
			}
			f.same("default", byID)
		})
	}
}
