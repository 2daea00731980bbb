package route_test

import (
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/broker/route"
)

func Example() {
	rules, err := route.NewPlacement([]string{"books*=east,west"}, "single")
	if err != nil {
		fmt.Println(err)
		return
	}
	view := route.New(rules, []*route.Node{
		{ID: "e0", Address: "10.0.0.1:50051", Shard: "east", Role: route.Master, Ready: true, Health: route.Healthy, Indexes: []string{"books", "maps"}},
		{ID: "e1", Address: "10.0.0.2:50051", Shard: "east", Role: route.Follower, Ready: true, Health: route.Healthy, Indexes: []string{"books", "maps"}},
		{ID: "w0", Address: "10.0.0.3:50051", Shard: "west", Ready: true, Health: route.Suspect, Indexes: []string{"books"}},
	})

	for turn := range uint64(2) {
		read, err := view.Read("maps", turn)
		fmt.Println("maps from", read.Node.ID, err)
	}
	write, err := view.Write("books")
	for i, part := range write.Parts {
		fmt.Println("part", i, "of books at", part.Node.ID, err)
	}
	fmt.Println("book 17 in part", write.Rule.Partition([]byte("17")))
	_, err = view.Read("stars", 0)
	fmt.Println(status.Code(err), status.Convert(err).Message())
	made, err := view.Create("stars")
	fmt.Println("stars at", made[0].Node.ID, err)
	// Output:
	// maps from e0 <nil>
	// maps from e1 <nil>
	// part 0 of books at e0 <nil>
	// part 1 of books at w0 <nil>
	// book 17 in part 1
	// NotFound index 'stars' is not present on any healthy backend
	// stars at w0 <nil>
}
