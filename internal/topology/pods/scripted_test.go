package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

var resource = schema.GroupResource{Resource: "pods"}

func version(v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.ResourceVersion = v } }

func list(v string, pods ...*corev1.Pod) *corev1.PodList {
	l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: v}}
	for _, p := range pods {
		l.Items = append(l.Items, *p)
	}
	return l
}

// scripted is an API whose answers the test gives, one after another, and whose requests it sees with the time they came at. Answers
// are used in order; the last is given again for good.
type scripted struct {
	mu      sync.Mutex
	lists   []func(context.Context) (*corev1.PodList, error)
	watches []func() (watch.Interface, error)
	asked   []string // "list VERSION" or "watch VERSION"
	at      []time.Time
	options []metav1.ListOptions
}

func (s *scripted) note(what string, o metav1.ListOptions) {
	s.asked = append(s.asked, what+" "+o.ResourceVersion)
	s.at = append(s.at, time.Now())
	s.options = append(s.options, o)
}

func (s *scripted) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	s.mu.Lock()
	s.note("list", o)
	f := s.lists[0]
	if len(s.lists) > 1 {
		s.lists = s.lists[1:]
	}
	s.mu.Unlock()
	return f(ctx)
}

func (s *scripted) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	s.note("watch", o)
	f := s.watches[0]
	if len(s.watches) > 1 {
		s.watches = s.watches[1:]
	}
	s.mu.Unlock()
	return f()
}

func (s *scripted) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// since tells how long after the request before each request came, from the second on.
func (s *scripted) since() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []time.Duration
	for i := 1; i < len(s.at); i++ {
		out = append(out, s.at[i].Sub(s.at[i-1]))
	}
	return out
}

func gives(l *corev1.PodList) func(context.Context) (*corev1.PodList, error) {
	return func(context.Context) (*corev1.PodList, error) { return l.DeepCopy(), nil }
}

func fails(err error) func(context.Context) (*corev1.PodList, error) {
	return func(context.Context) (*corev1.PodList, error) { return nil, err }
}

func begins(w watch.Interface) func() (watch.Interface, error) {
	return func() (watch.Interface, error) { return w, nil }
}

func denies(err error) func() (watch.Interface, error) {
	return func() (watch.Interface, error) { return nil, err }
}

// run is a Run in a bubble.
type run struct {
	t      *testing.T
	mu     sync.Mutex
	lists  [][]Pod
	err    error
	ended  chan struct{}
	cancel context.CancelFunc
	log    bytes.Buffer
}

// begin starts Run over api in the bubble of the test. The test ends it with end, or waits for its error with result.
func begin(t *testing.T, api podAPI, c Config) *run {
	t.Helper()
	r := &run{t: t, ended: make(chan struct{})}
	c.Log = slog.New(slog.NewTextHandler(&r.log, nil))
	w := watcher(t, c)
	w.connect = func(Config) (podAPI, func(), error) { return api, func() {}, nil }
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() {
		defer close(r.ended)
		r.err = w.Run(ctx, func(p []Pod) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lists = append(r.lists, p)
		})
	}()
	synctest.Wait()
	return r
}

// want checks all lists so far, each written as "a b!": ids, an exclamation mark for one that is not ready.
func (r *run) want(lists ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for _, l := range r.lists {
		got = append(got, short(l))
	}
	if !reflect.DeepEqual(got, lists) {
		r.t.Errorf("published %q, want %q", got, lists)
	}
}

func short(l []Pod) string {
	var ids []string
	for _, p := range l {
		id := p.ID
		if !p.Ready {
			id += "!"
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

func (r *run) end() {
	r.t.Helper()
	r.cancel()
	<-r.ended
	if r.err != nil {
		r.t.Errorf("Run: %v", r.err)
	}
}

func TestEventsBecomeLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch.NewFake()
		api := &scripted{
			lists:   []func(context.Context) (*corev1.PodList, error){gives(list("10", pod("b", "0", "10.0.0.2", version("3"))))},
			watches: []func() (watch.Interface, error){begins(w)},
		}
		r := begin(t, api, Config{Selector: "app=x"})
		r.want("b")
		w.Add(pod("a", "0", "10.0.0.1", version("11"), condition(corev1.ConditionFalse)))
		r.want("b", "a! b")
		w.Modify(pod("a", "0", "10.0.0.1", version("12")))
		r.want("b", "a! b", "a b")
		w.Modify(pod("b", "0", "10.0.0.2", version("13"), deleting))
		r.want("b", "a! b", "a b", "a b!")
		w.Delete(pod("b", "0", "10.0.0.2", version("14"), deleting))
		r.want("b", "a! b", "a b", "a b!", "a")
		w.Add(pod("c", "", "10.0.0.3", version("15"))) // no shard
		w.Add(pod("d", "1", "", version("16")))        // no address yet
		r.want("b", "a! b", "a b", "a b!", "a")
		w.Modify(pod("d", "1", "10.0.0.4", version("17")))
		r.want("b", "a! b", "a b", "a b!", "a", "a d")
		r.end()
		if got := api.requests(); !reflect.DeepEqual(got, []string{"list 0", "watch 10"}) {
			t.Errorf("asked %q", got)
		}
		for _, o := range api.options {
			if o.LabelSelector != DefaultShardLabel+",app=x" || o.FieldSelector != "" {
				t.Errorf("selectors %q, %q", o.LabelSelector, o.FieldSelector)
			}
		}
	})
}

func TestAnEmptyFleetIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch.NewFake()
		r := begin(t, &scripted{
			lists:   []func(context.Context) (*corev1.PodList, error){gives(list("1"))},
			watches: []func() (watch.Interface, error){begins(w)},
		}, Config{})
		r.want("")
		if r.lists[0] == nil || len(r.lists[0]) != 0 {
			t.Errorf("published %#v", r.lists[0])
		}
		r.end()
	})
}

// TestDuplicatesAndLateEventsChangeNothing: an event that is older than one before it is not the state of the pod.
func TestDuplicatesAndLateEventsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch.NewFake()
		r := begin(t, &scripted{
			lists:   []func(context.Context) (*corev1.PodList, error){gives(list("100", pod("a", "0", "10.0.0.1", version("90"))))},
			watches: []func() (watch.Interface, error){begins(w)},
		}, Config{})
		a := pod("a", "0", "10.0.0.1", version("101"), role("master"))
		b := pod("b", "0", "10.0.0.2", version("102"))
		w.Add(a)
		r.want("a", "a")
		w.Add(b)
		r.want("a", "a", "a b")
		// Duplicates.
		w.Add(b)
		w.Modify(b)
		w.Add(a)
		// Late: before the list, before what was told since, a deletion that something newer undid, and after a deletion. 99 is fewer digits.
		w.Modify(pod("a", "0", "10.0.0.9", version("99")))
		w.Add(pod("z", "0", "10.0.0.9", version("9")))
		w.Modify(pod("a", "0", "10.0.0.9", version("101")))
		w.Delete(pod("b", "0", "10.0.0.2", version("101")))
		r.want("a", "a", "a b")
		w.Delete(pod("b", "0", "10.0.0.2", version("105")))
		w.Delete(pod("b", "0", "10.0.0.2", version("105")))
		w.Modify(pod("b", "0", "10.0.0.2", version("104")))
		w.Add(pod("b", "0", "10.0.0.2", version("103")))
		r.want("a", "a", "a b", "a")
		w.Delete(pod("nobody", "0", "10.0.0.2", version("106")))
		w.Add(pod("b", "0", "10.0.0.3", version("107")))
		r.want("a", "a", "a b", "a", "a b")
		r.end()
	})
}

func bookmark(v string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: v}}
}

// TestAWatchGoesOnWhereItStopped: a bookmark moves the place to go on from, and is no pod.
func TestAWatchGoesOnWhereItStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := watch.NewFake(), watch.NewFake(), watch.NewFake()
		api := &scripted{
			lists:   []func(context.Context) (*corev1.PodList, error){gives(list("10", pod("a", "0", "10.0.0.1", version("3"))))},
			watches: []func() (watch.Interface, error){begins(first), begins(second), begins(third)},
		}
		r := begin(t, api, Config{})
		first.Action(watch.Bookmark, bookmark("40"))
		first.Stop()
		synctest.Wait()
		second.Add(pod("b", "0", "10.0.0.2", version("41")))
		second.Stop()
		r.want("a", "a b")
		if got := api.requests(); !reflect.DeepEqual(got, []string{"list 0", "watch 10", "watch 40", "watch 41"}) {
			t.Errorf("asked %q", got)
		}
		for _, d := range api.since() {
			if d != 0 {
				t.Errorf("waited %v", api.since())
			}
		}
		for _, o := range api.options[1:] {
			if !o.AllowWatchBookmarks {
				t.Errorf("asked without bookmarks: %+v", o)
			}
		}
		r.end()
	})
}

func gone() error { return apierrors.NewResourceExpired("too old resource version: 40 (99)") }

// TestGoneIsListedAnew: the server no longer has the version, told by an answer to the watch or by an event in it. What was missed is
// told by a list, at once and whole.
func TestGoneIsListedAnew(t *testing.T) {
	for _, told := range []string{"answer", "event"} {
		t.Run(told, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, last := watch.NewFake(), watch.NewFake()
				api := &scripted{
					lists: []func(context.Context) (*corev1.PodList, error){
						gives(list("10", pod("a", "0", "10.0.0.1", version("3")), pod("b", "0", "10.0.0.2", version("4")))),
						fails(gone()), // the list by version, too: then the newest
						gives(list("99", pod("b", "0", "10.0.0.2", version("4"), role("master")), pod("c", "0", "10.0.0.3", version("98")))),
					},
					watches: []func() (watch.Interface, error){begins(first), denies(gone()), begins(last)},
				}
				if told == "event" {
					api.watches = []func() (watch.Interface, error){begins(first), begins(last)}
				}
				r := begin(t, api, Config{})
				if told == "event" {
					s := gone().(apierrors.APIStatus).Status()
					first.Error(&s)
				} else {
					first.Action(watch.Bookmark, bookmark("40"))
					first.Stop()
				}
				synctest.Wait()
				<-time.After(3 * time.Second) // client-go's pause
				r.want("a b", "b c")
				want := []string{"list 0", "watch 10", "list 10", "list ", "watch 99"}
				if told == "answer" {
					want = []string{"list 0", "watch 10", "watch 40", "list 40", "list ", "watch 99"}
				}
				if got := api.requests(); !reflect.DeepEqual(got, want) {
					t.Errorf("asked %q, want %q", got, want)
				}
				last.Add(pod("d", "0", "10.0.0.4", version("100")))
				r.want("a b", "b c", "b c d")
				r.end()
			})
		})
	}
}

// TestABrokenWatchIsTriedAfterFiveSeconds: with the version it had, and the list stays.
func TestABrokenWatchIsTriedAfterFiveSeconds(t *testing.T) {
	for name, err := range map[string]error{
		"refused connection": fmt.Errorf("dial: %w", &netError{syscall.ECONNREFUSED}),
		"time-out":           &netError{context.DeadlineExceeded},
		"cut":                io.ErrUnexpectedEOF,
		"429":                apierrors.NewTooManyRequests("slow down", 1),
		"500":                apierrors.NewInternalError(errors.New("broken")),
		"503":                apierrors.NewServiceUnavailable("starting"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, last := watch.NewFake(), watch.NewFake()
				api := &scripted{
					lists:   []func(context.Context) (*corev1.PodList, error){gives(list("10", pod("a", "0", "10.0.0.1", version("3"))))},
					watches: []func() (watch.Interface, error){begins(first), denies(err), denies(err), denies(err), begins(last)},
				}
				r := begin(t, api, Config{})
				first.Action(watch.Bookmark, bookmark("11"))
				first.Stop()
				<-time.After(15 * time.Second)
				synctest.Wait()
				if got := api.requests(); !reflect.DeepEqual(got, []string{"list 0", "watch 10", "watch 11", "watch 11", "watch 11", "watch 11"}) {
					t.Errorf("asked %q", got)
				}
				if got := api.since(); !reflect.DeepEqual(got[2:], []time.Duration{retryAfter, retryAfter, retryAfter}) {
					t.Errorf("asked after %v", got)
				}
				last.Add(pod("b", "0", "10.0.0.2", version("12")))
				r.want("a", "a b")
				r.end()
				if n := strings.Count(r.log.String(), "level=WARN"); n != 3 {
					t.Errorf("%d warnings for 3 failures:\n%s", n, r.log.String())
				}
			})
		})
	}
}

type netError struct{ error }

func (e *netError) Timeout() bool   { return true }
func (e *netError) Temporary() bool { return true }
func (e *netError) Unwrap() error   { return e.error }

// TestARightThatIsTakenAwayLeavesTheList: watches that are refused later on are followed by lists, and by watches when the right is back.
func TestARightThatIsTakenAwayLeavesTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, last := watch.NewFake(), watch.NewFake()
		no := apierrors.NewForbidden(resource, "", errors.New("not allowed"))
		api := &scripted{
			lists: []func(context.Context) (*corev1.PodList, error){
				gives(list("10", pod("a", "0", "10.0.0.1", version("3")))), fails(no), fails(no), gives(list("20", pod("b", "0", "10.0.0.2", version("15")))),
			},
			watches: []func() (watch.Interface, error){begins(first), denies(no), begins(last)},
		}
		r := begin(t, api, Config{})
		first.Action(watch.Bookmark, bookmark("11"))
		first.Stop()
		<-time.After(14 * time.Second)
		r.want("a")
		<-time.After(6 * time.Second)
		r.want("a", "b")
		last.Delete(pod("b", "0", "10.0.0.2", version("21")))
		r.want("a", "b", "")
		r.end()
	})
}

// TestNoAccessAtTheStartEndsRun at once and with the reason, and there is no list.
func TestNoAccessAtTheStartEndsRun(t *testing.T) {
	for name, err := range map[string]error{
		"unauthorized":       apierrors.NewUnauthorized("who is it?"),
		"forbidden":          apierrors.NewForbidden(resource, "", errors.New("not allowed")),
		"not found":          apierrors.NewNotFound(resource, ""),
		"refused connection": &netError{syscall.ECONNREFUSED},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := begin(t, &scripted{lists: []func(context.Context) (*corev1.PodList, error){fails(err)}}, Config{})
				<-r.ended
				if !errors.Is(r.err, ErrNoAccess) || !errors.Is(r.err, err) || !strings.Contains(r.err.Error(), "list pods of namespace summa") {
					t.Errorf("error %v", r.err)
				}
				if d := time.Since(began); d != 0 {
					t.Errorf("after %v", d)
				}
				r.want()
			})
		})
	}
}

func TestAWatchThatIsRefusedAtFirstEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, &scripted{
			lists:   []func(context.Context) (*corev1.PodList, error){gives(list("10", pod("a", "0", "10.0.0.1", version("3"))))},
			watches: []func() (watch.Interface, error){denies(apierrors.NewForbidden(resource, "", errors.New("not allowed")))},
		}, Config{})
		<-r.ended
		if !errors.Is(r.err, ErrNoAccess) || !strings.Contains(r.err.Error(), "watch pods of namespace summa") {
			t.Errorf("error %v", r.err)
		}
	})
}

// TestAServerInTroubleHasHalfAMinute to give the first list.
func TestAServerInTroubleHasHalfAMinute(t *testing.T) {
	busy := fails(apierrors.NewTooManyRequests("slow down", 1))
	broken := fails(apierrors.NewInternalError(errors.New("broken")))
	silent := func(ctx context.Context) (*corev1.PodList, error) { <-ctx.Done(); return nil, ctx.Err() }
	t.Run("it does", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := begin(t, &scripted{
				lists:   []func(context.Context) (*corev1.PodList, error){busy, broken, busy, broken, busy, gives(list("1", pod("a", "0", "10.0.0.1")))},
				watches: []func() (watch.Interface, error){begins(watch.NewFake())},
			}, Config{})
			<-time.After(26 * time.Second)
			r.want("a")
			r.end()
		})
	})
	for name, f := range map[string]func(context.Context) (*corev1.PodList, error){"busy": busy, "broken": broken, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := begin(t, &scripted{lists: []func(context.Context) (*corev1.PodList, error){f}}, Config{})
				<-r.ended
				if !errors.Is(r.err, ErrNoAccess) || time.Since(began) != startTimeout {
					t.Errorf("after %v: %v", time.Since(began), r.err)
				}
				r.want()
			})
		})
	}
}

// TestASilentListIsGivenUp: a connection that answers nothing does not hold the list for good.
func TestASilentListIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := watch.NewFake()
		api := &scripted{
			lists: []func(context.Context) (*corev1.PodList, error){
				gives(list("10", pod("a", "0", "10.0.0.1"))),
				func(ctx context.Context) (*corev1.PodList, error) { <-ctx.Done(); return nil, ctx.Err() },
				gives(list("20", pod("b", "0", "10.0.0.1"))),
			},
			watches: []func() (watch.Interface, error){begins(first), begins(watch.NewFake())},
		}
		r := begin(t, api, Config{})
		s := gone().(apierrors.APIStatus).Status()
		first.Error(&s)
		<-time.After(listTimeout + retryAfter + 3*time.Second)
		r.want("a", "b")
		r.end()
	})
}

// TestASilentWatchIsGivenUp: a server ends a watch within ten minutes; where it does not, it is ended here.
func TestASilentWatchIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &deaf{}
		r := begin(t, api, Config{})
		<-time.After(11 * time.Minute)
		r.end()
		if n := api.watches; n < 2 {
			t.Errorf("%d watches in eleven minutes", n)
		}
	})
}

// deaf is an API whose watches tell nothing and end with their context only.
type deaf struct{ watches int }

func (d *deaf) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	return list("1"), nil
}

func (d *deaf) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	d.watches++
	w := watch.NewFake()
	go func() { <-ctx.Done(); w.Stop() }()
	return w, nil
}

// TestChangesDuringPublishAreToldTogether: a callee that is slow sees the newest list next, not each.
func TestChangesDuringPublishAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := watch.NewFake()
		w := watcher(t, Config{})
		w.connect = func(Config) (podAPI, func(), error) {
			return &scripted{
				lists:   []func(context.Context) (*corev1.PodList, error){gives(list("10"))},
				watches: []func() (watch.Interface, error){begins(fake)},
			}, func() {}, nil
		}
		got, goOn := make(chan []Pod), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- w.Run(ctx, func(p []Pod) { got <- p; <-goOn })
		}()
		<-got
		for i := range 500 {
			fake.Add(pod(fmt.Sprintf("p%03d", i), "0", "10.0.0.1", version(fmt.Sprint(11+i))))
		}
		synctest.Wait()
		goOn <- struct{}{}
		if l := <-got; len(l) != 500 || l[0].ID != "p000" || l[499].ID != "p499" {
			t.Errorf("%d pods", len(l))
		}
		goOn <- struct{}{}
		synctest.Wait()
		select {
		case l := <-got:
			t.Errorf("once more: %d pods", len(l))
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestAPublishedListIsTheCallees: what the callee does with it is not seen later.
func TestAPublishedListIsTheCallees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch.NewFake()
		r := begin(t, &scripted{
			lists:   []func(context.Context) (*corev1.PodList, error){gives(list("10", pod("a", "0", "10.0.0.1")))},
			watches: []func() (watch.Interface, error){begins(w)},
		}, Config{})
		r.lists[0][0] = Pod{ID: "spoilt"}
		w.Modify(pod("a", "0", "10.0.0.1", version("11")))
		r.want("spoilt!")
		w.Add(pod("b", "0", "10.0.0.2", version("12")))
		r.want("spoilt!", "a b")
		r.end()
	})
}

// TestTheEndOfTheContextIsNoError, whatever Run waits for.
func TestTheEndOfTheContextIsNoError(t *testing.T) {
	silent := func(ctx context.Context) (*corev1.PodList, error) { <-ctx.Done(); return nil, ctx.Err() }
	for name, api := range map[string]*scripted{
		"first list": {lists: []func(context.Context) (*corev1.PodList, error){silent}},
		"next try":   {lists: []func(context.Context) (*corev1.PodList, error){fails(apierrors.NewInternalError(errors.New("broken")))}},
		"watch that is down": {
			lists:   []func(context.Context) (*corev1.PodList, error){gives(list("1"))},
			watches: []func() (watch.Interface, error){denies(&netError{syscall.ECONNREFUSED})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := begin(t, api, Config{})
				r.end()
				if d := time.Since(began); d != 0 {
					t.Errorf("ended after %v", d)
				}
			})
		})
	}
}

func TestNoConfigurationIsNoAccess(t *testing.T) {
	home := t.TempDir()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	t.Setenv("KUBECONFIG", home+"/none")
	err := watcher(t, Config{}).Run(t.Context(), func([]Pod) { t.Error("published") })
	if !errors.Is(err, ErrNoAccess) || !strings.Contains(err.Error(), home+"/none") {
		t.Errorf("error %v", err)
	}
}

// code makes the error that client-go makes of a bare status.
func code(n int) error {
	return apierrors.NewGenericServerResponse(n, "get", resource, "", http.StatusText(n), 0, true)
}

func TestWhatPassesByItself(t *testing.T) {
	for n, want := range map[int]bool{400: false, 401: false, 403: false, 404: false, 409: false, 429: true, 500: true, 502: true, 503: true, 504: true} {
		if got := passing(code(n)); got != want {
			t.Errorf("%d: %v", n, got)
		}
	}
	if !mustRelist(code(410)) || mustRelist(code(504)) {
		t.Error("410 and nothing else is listed anew")
	}
	if tooNew := apierrors.NewTimeoutError("too large", 1); mustRelist(tooNew) {
		t.Error("a time-out is not a version that is too large")
	} else {
		tooNew.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		if !mustRelist(tooNew) {
			t.Error("a version that is too large is listed anew")
		}
	}
}
