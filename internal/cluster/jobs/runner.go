package jobs

import (
	"context"
	"errors"
)

type Options struct{}

type Runner struct{}

var errNotYet = errors.New("not yet")

func (r *Runner) Start()                                                            {}
func (r *Runner) Close() error                                                      { return nil }
func (r *Runner) Behind(string) bool                                                { return false }
func (r *Runner) Rebalance(context.Context, int, int) (*RebalanceReply, error)      { return nil, errNotYet }
func (r *Runner) StartRebalance(context.Context, int, int) (string, error)          { return "", errNotYet }
func (r *Runner) Repair(context.Context) (*RepairReply, error)                      { return nil, errNotYet }
func (r *Runner) StartRepair(context.Context) (string, error)                       { return "", errNotYet }
func (r *Runner) Jobs(context.Context) ([]Job, error)                               { return nil, errNotYet }
func (r *Runner) Job(context.Context, string) (Job, error)                          { return Job{}, errNotYet }
func (r *Runner) Act(context.Context, string, string) (Job, error)                  { return Job{}, errNotYet }
