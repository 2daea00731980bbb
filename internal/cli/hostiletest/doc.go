// Package hostiletest puts a broker over three shards of two members each, real processes, before clients that mean it harm or know no better:
// that ask for much and do not read, send a byte and stop, leave in the middle, give no time, and call what is there for operators with whatever
// comes to mind. What has to hold is that memory stays bounded, others are served, everything that was held comes back, no answer
// claims to be more than it is, and nothing is refused with a 500 or done by a call that is refused.
//
// By default a test of each kind runs, in seconds. WEFT_HOSTILE=full (make hostile) takes minutes: it waits for the longest time-outs that are
// documented, and asks a hundred times as much.
package hostiletest
