package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// podAPI is what is asked of an API server.
type podAPI interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// source is where the informer lists and watches. It decides what is tried again after the same time, what goes back to the informer
// to be listed anew, and what ends the whole.
type source struct {
	api       podAPI
	namespace string
	selector  string
	log       *slog.Logger
	retry     time.Duration
	failed    chan error // with room for one: why there is no access

	running sync.WaitGroup // calls and watches

	mu      sync.Mutex
	closed  bool
	listed  bool  // one list came
	watched bool  // one watch began
	last    error // of the last request that failed
}

// IsWatchListSemanticsUnSupported keeps the informer to a list and then a watch, which every API server knows: one that is older than
// streamed lists begins a watch that never says that the list is complete.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher. The informer prefers ListWithContext.
func (s *source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListerWatcher. The informer prefers WatchWithContext.
func (s *source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// ListWithContext lists the pods, however often it takes.
func (s *source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if !s.enter() {
		return nil, context.Canceled
	}
	defer s.running.Done()
	o.LabelSelector = s.selector
	for {
		list, err := s.list(ctx, o)
		if err == nil {
			s.note(func() { s.listed = true })
			return list, nil
		}
		if ctx.Err() != nil || mustRelist(err) {
			return nil, err
		}
		s.note(func() { s.last = err })
		if !s.has(&s.listed) && !passing(err) {
			return nil, s.fail("list", err)
		}
		if err := s.pause(ctx, "list", err); err != nil {
			return nil, err
		}
	}
}

func (s *source) list(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errSilent)
	defer cancel()
	list, err := s.api.List(ctx, o)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return nil, errSilent
	}
	return list, err
}

// errSilent is a list that was not answered in time.
var errSilent = fmt.Errorf("no answer in %v", listTimeout)

// WatchWithContext begins a watch. What passes by itself is tried again from the same version; a watch that is refused is for the
// informer, which lists anew.
func (s *source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !s.enter() {
		return nil, context.Canceled
	}
	o.LabelSelector = s.selector
	for {
		w, err := s.watch(ctx, o)
		if err == nil {
			s.note(func() { s.watched = true })
			return w, nil // whose end is the end of what was entered
		}
		again := false
		if ctx.Err() == nil && !mustRelist(err) {
			s.note(func() { s.last = err })
			if refused(err) && !s.has(&s.watched) {
				err = s.fail("watch", err)
			} else if paused := s.pause(ctx, "watch", err); paused != nil {
				err = paused
			} else {
				again = connection(err) || passing(err)
			}
		}
		if !again {
			s.running.Done()
			return nil, err
		}
	}
}

func (s *source) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	cancel := func() {}
	if o.TimeoutSeconds != nil {
		// The server ends the watch by then. Where it does not, the connection leads nowhere.
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*o.TimeoutSeconds)*time.Second+watchGrace)
	}
	in, err := s.api.Watch(ctx, o)
	if err != nil {
		cancel()
		return nil, err
	}
	f := &forward{in: in, out: make(chan watch.Event), stop: make(chan struct{}), newest: o.ResourceVersion}
	go func() {
		defer s.running.Done()
		defer cancel()
		f.run()
	}()
	return f, nil
}

// ended hears why the informer gave up a list or a watch; it tries again by itself. What source told before is not told twice.
func (s *source) ended(err error) {
	var told *toldError
	if errors.As(err, &told) || errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return
	}
	s.log.Debug("pods are listed anew", "namespace", s.namespace, "error", err)
}

// toldError is one that is logged already, or that ends Run. It hides what it holds from the informer, so that the informer does not
// wait for its own time on top.
type toldError struct{ text string }

func (e *toldError) Error() string { return e.text }

// pause waits until it is time to try again. It returns an error when ctx ended first.
func (s *source) pause(ctx context.Context, what string, err error) error {
	s.log.Warn("pods: "+what+" failed", "namespace", s.namespace, "error", err, "again_in", s.retry)
	t := time.NewTimer(s.retry)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return &toldError{err.Error()}
	case <-t.C:
		return nil
	}
}

// fail ends Run.
func (s *source) fail(what string, err error) error {
	err = fmt.Errorf("%w: %s pods of namespace %s: %w", ErrNoAccess, what, s.namespace, err)
	select {
	case s.failed <- err:
	default: // one is enough
	}
	return &toldError{err.Error()}
}

// late is why there was no list in time.
func (s *source) late(after time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return fmt.Errorf("%w: list pods of namespace %s: no answer in %v", ErrNoAccess, s.namespace, after)
	}
	return fmt.Errorf("%w: list pods of namespace %s: none in %v: %w", ErrNoAccess, s.namespace, after, s.last)
}

// enter counts a call in, unless the source is closed.
func (s *source) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// close waits for all that runs, whose contexts have ended.
func (s *source) close() {
	s.note(func() { s.closed = true })
	s.running.Wait()
}

func (s *source) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *source) has(b *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *b
}

// mustRelist reports a version that the server no longer has, or has not yet: only another list helps.
func mustRelist(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// passing reports that the server is there and says, by its silence or a code, that it may answer later.
func passing(err error) bool {
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		code := s.Status().Code
		return code == 429 || code >= 500
	}
	return errors.Is(err, errSilent)
}

// refused reports that the server will not do it for this caller.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// connection reports that no server answered.
func connection(err error) bool {
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// forward passes on the events of a watch, but those that are older than one before: a watch tells in the order of versions what is
// newer than the version it began at, so anything else came twice or late.
type forward struct {
	in     watch.Interface
	out    chan watch.Event
	stop   chan struct{}
	once   sync.Once
	newest string // version; begins as the one that the watch began at
	told   bool   // an event went out
}

// ResultChan implements watch.Interface.
func (f *forward) ResultChan() <-chan watch.Event { return f.out }

// Stop implements watch.Interface.
func (f *forward) Stop() { f.once.Do(func() { close(f.stop) }) }

func (f *forward) run() {
	defer close(f.out)
	defer f.in.Stop()
	for {
		select {
		case <-f.stop:
			return
		case e, ok := <-f.in.ResultChan():
			if !ok {
				return
			}
			if f.old(e) {
				continue
			}
			if f.told && broken(e) {
				// The next watch goes on behind what was told. Where nothing was, it might meet the same again: that is listed anew.
				return
			}
			select {
			case <-f.stop:
				return
			case f.out <- e:
				f.told = true
			}
		}
	}
}

// broken reports that the stream broke: the client, not the server, makes the event of a connection that was reset or of bytes that are
// no event.
func broken(e watch.Event) bool {
	return e.Type == watch.Error && apierrors.HasStatusCause(apierrors.FromObject(e.Object), "ClientWatchDecoding")
}

func (f *forward) old(e watch.Event) bool {
	if e.Type == watch.Error {
		return false
	}
	o, err := meta.Accessor(e.Object)
	if err != nil {
		return false // the informer says what it makes of it
	}
	v := o.GetResourceVersion()
	// Versions that are no numbers cannot be compared; API servers have none such.
	if n, err := resourceversion.CompareResourceVersion(v, f.newest); err == nil && n < 0 {
		return true
	}
	f.newest = v
	return false
}
