package apparmor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A bench calls a Host's Profile in a bubble. Its parser ends on command.
type bench struct {
	*testing.T
	*Host
	tries int
	ends  chan error
}

func newBench(t *testing.T, profiles string) *bench {
	b := &bench{T: t, ends: make(chan error)}
	b.Host = host(t, "Y\n", profiles, func(string) error { b.tries++; return <-b.ends })
	return b
}

type answer struct {
	profile string
	err     error
}

// asks calls Profile once per argument: true for containers that need the default profile.
func (b *bench) asks(needed ...bool) (who []chan answer) {
	for _, needed := range needed {
		got := make(chan answer, 1)
		who = append(who, got)
		sec := &api.LinuxContainerSecurityContext{}
		if needed {
			sec.Apparmor = &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}
		}
		go func() {
			p, err := b.Profile(sec)
			got <- answer{p, err}
		}()
		synctest.Wait()
	}
	return who
}

// end makes the parser end.
func (b *bench) end(err error) {
	b.ends <- err
	synctest.Wait()
}

// got compares the results of callers that do not wait any more, and the number of attempts.
func (b *bench) got(moment string, who []chan answer, want string, err error, tries int) {
	b.Helper()
	for i, w := range who {
		select {
		case got := <-w:
			if got.profile != want || !errors.Is(got.err, err) {
				b.Fatalf("%s: %d: %q, %v; want %q, %v", moment, i, got.profile, got.err, want, err)
			}
		default:
			b.Fatalf("%s: %d waits", moment, i)
		}
	}
	if b.tries != tries {
		b.Fatalf("%s: %d tries, not %d", moment, b.tries, tries)
	}
}

func (b *bench) waits(moment string, who []chan answer) {
	b.Helper()
	for i, w := range who {
		if len(w) > 0 {
			b.Fatalf("%s: %d does not wait", moment, i)
		}
	}
}

const needs, whoever = true, false // whether a container needs the default profile

// TestParserInstalled: a profile that could not be loaded is loaded once that is possible: for the
// next container that needs it, or soon after the next container, and from then on for all.
func TestParserInstalled(t *testing.T) {
	for _, who := range []bool{needs, whoever} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, "x (enforce)\n")
			first := b.asks(whoever)
			b.waits("the first try", first)
			b.end(errNoParser)
			b.got("without a parser", first, "", nil, 1)
			again := b.asks(who)
			if who == needs {
				b.waits("who needs it", again)
				b.end(nil)
				b.got("who needs it", again, DefaultProfile, nil, 2)
			} else {
				b.got("who does not", again, "", nil, 2)
				b.end(nil)
			}
			b.got("from then on", b.asks(whoever, needs), DefaultProfile, nil, 2)
		})
	}
}

// TestParserFails: a failing parser runs once for all containers that need its profile, and once a
// minute. Containers that need no profile wait only for the first attempt; later ones run in the
// background, and the containers after them are confined.
func TestParserFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "x (enforce)\n")
		broken := errors.New("broken")
		all, need := b.asks(whoever, whoever), b.asks(needs)
		b.waits("the first try", append(all, need...))
		b.end(broken)
		b.got("the first try", all, "", nil, 1)
		b.got("the first try", need, "", broken, 1)

		b.got("just failed", b.asks(needs), "", broken, 1)
		time.Sleep(pause - 1)
		b.got("almost a minute later", b.asks(needs), "", broken, 1)
		b.got("almost a minute later, nothing asked", b.asks(whoever), "", nil, 1)
		time.Sleep(1)
		need = b.asks(needs, needs)
		b.waits("a minute later", need)
		b.got("while the parser runs", b.asks(whoever), "", nil, 2)
		b.end(broken)
		b.got("the second try", append(need, b.asks(needs)...), "", broken, 2)

		time.Sleep(pause)
		b.got("two minutes later, nothing asked", b.asks(whoever, whoever), "", nil, 3)
		need = b.asks(needs)
		b.waits("who needs it, meanwhile", need)
		b.end(nil)
		b.got("it works", append(need, b.asks(whoever, needs)...), DefaultProfile, nil, 3)
	})
}

// TestProfileGone: a profile that was removed from the kernel, or is in complain mode, is loaded
// again before a container starts. If the kernel keeps it in complain mode, this is tried once a
// minute.
func TestProfileGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "x (enforce)\n")
		first := b.asks(whoever)
		b.end(nil)
		b.got("the first try", first, DefaultProfile, nil, 1)
		if err := has(b.Host, "x (enforce)\n"); err != nil {
			t.Fatal(err)
		}
		all := b.asks(whoever, needs)
		b.waits("it is gone", all)
		b.end(nil)
		b.got("it is back", append(all, b.asks(whoever)...), DefaultProfile, nil, 2)

		complains := DefaultProfile + " (complain)\n"
		if err := has(b.Host, complains); err != nil {
			t.Fatal(err)
		}
		b.got("it complains just after", b.asks(whoever, needs), DefaultProfile, nil, 2)
		time.Sleep(pause)
		all = b.asks(whoever)
		b.waits("it complains a minute later", all)
		b.end(nil)
		b.got("it is enforced", append(all, b.asks(whoever, needs)...), DefaultProfile, nil, 3)

		if err := has(b.Host, ""); err != nil {
			t.Fatal(err)
		}
		all = b.asks(whoever)
		b.end(errNoParser)
		b.got("gone, and so is the parser", all, "", nil, 4)
	})
}

// TestProfileOfBefore: a profile of an earlier start of the agent is replaced in the background,
// because its rules may be outdated. If it cannot be replaced, it continues to confine containers.
func TestProfileOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, DefaultProfile+" (enforce)\n")
		b.got("at once", b.asks(whoever, needs), DefaultProfile, nil, 1)
		b.end(errors.New("broken"))
		b.got("it stays", b.asks(whoever, needs), DefaultProfile, nil, 1)
		time.Sleep(pause)
		b.got("a minute later", b.asks(whoever, needs), DefaultProfile, nil, 2)
		b.end(nil)
		time.Sleep(pause)
		b.got("replaced", b.asks(whoever, needs), DefaultProfile, nil, 2)
	})
}
