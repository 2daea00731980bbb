package jobs

// doubter is a Cluster that knows which members may lack documents of their group as a whole: those that are new in it, and those whose
// disk was replaced. A *members.Cluster is one.
type doubter interface {
	Suspect(addr string) bool
	// Trust says that a member was compared with the others of its group and lacks nothing, or is to be taken as it is.
	Trust(addr string)
}

// suspect tells whether a member is to be compared as a whole before anything is taken from it.
func (r *Runner) suspect(addr string) bool {
	d, ok := r.c.(doubter)
	return ok && d.Suspect(addr)
}

func (r *Runner) trust(addr string) {
	if d, ok := r.c.(doubter); ok {
		d.Trust(addr)
	}
}

// lacks tells whether a member may lack documents: nothing is taken from it while there is another.
func (r *Runner) lacks(addr string) bool { return r.suspect(addr) || r.Behind(addr) }
