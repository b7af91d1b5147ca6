package apparmor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A parserBench is a Host in a synctest bubble. Its parser does not return until the test calls end.
type parserBench struct {
	*testing.T
	*Host
	tries int
	ends  chan error
}

func newParserBench(t *testing.T, profiles string) *parserBench {
	b := &parserBench{T: t, ends: make(chan error)}
	b.Host = host(t, "Y\n", profiles, func(string) error { b.tries++; return <-b.ends })
	return b
}

type result struct {
	profile string
	err     error
}

// start calls Profile for several containers, one for each argument. An argument is whether the container requires the default profile.
func (b *parserBench) start(needed ...bool) (who []chan result) {
	for _, needed := range needed {
		got := make(chan result, 1)
		who = append(who, got)
		sec := &api.LinuxContainerSecurityContext{}
		if needed {
			sec.Apparmor = &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}
		}
		go func() {
			p, err := b.Profile(sec)
			got <- result{p, err}
		}()
		synctest.Wait()
	}
	return who
}

// end makes the running parser return err, which may be nil.
func (b *parserBench) end(err error) {
	b.ends <- err
	synctest.Wait()
}

// expect checks the result of every caller, and how many times the parser has run.
func (b *parserBench) expect(moment string, who []chan result, want string, err error, tries int) {
	b.Helper()
	for i, w := range who {
		select {
		case got := <-w:
			if got.profile != want || !errors.Is(got.err, err) {
				b.Fatalf("%s: caller %d: %q, %v; want %q, %v", moment, i, got.profile, got.err, want, err)
			}
		default:
			b.Fatalf("%s: caller %d waits", moment, i)
		}
	}
	if b.tries != tries {
		b.Fatalf("%s: %d attempts, want %d", moment, b.tries, tries)
	}
}

func (b *parserBench) expectWaiting(moment string, who []chan result) {
	b.Helper()
	for i, w := range who {
		if len(w) > 0 {
			b.Fatalf("%s: caller %d does not wait", moment, i)
		}
	}
}

const required, optional = true, false // whether a container requests the default profile

// TestParserInstalled checks an apparmor_parser that is installed later. The parser runs for the next container. A container that requires
// the default profile waits for the result.
func TestParserInstalled(t *testing.T) {
	for _, who := range []bool{required, optional} {
		synctest.Test(t, func(t *testing.T) {
			b := newParserBench(t, "x (enforce)\n")
			first := b.start(optional)
			b.expectWaiting("the first attempt", first)
			b.end(errNoParser)
			b.expect("without a parser", first, "", nil, 1)
			again := b.start(who)
			if who == required {
				b.expectWaiting("a container that requests it", again)
				b.end(nil)
				b.expect("a container that requests it", again, DefaultProfile, nil, 2)
			} else {
				b.expect("a container that does not request it", again, "", nil, 2)
				b.end(nil)
			}
			b.expect("later containers", b.start(optional, required), DefaultProfile, nil, 2)
		})
	}
}

// TestParserFails checks that a parser that fails runs at most once a minute. A container that requires the profile waits until the parser
// has run. Other containers wait only for the first run.
func TestParserFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newParserBench(t, "x (enforce)\n")
		broken := errors.New("broken")
		all, need := b.start(optional, optional), b.start(required)
		b.expectWaiting("the first attempt", append(all, need...))
		b.end(broken)
		b.expect("the first attempt", all, "", nil, 1)
		b.expect("the first attempt", need, "", broken, 1)

		b.expect("just failed", b.start(required), "", broken, 1)
		time.Sleep(minPause - 1)
		b.expect("almost a minute later", b.start(required), "", broken, 1)
		b.expect("almost a minute later, nothing requested", b.start(optional), "", nil, 1)
		time.Sleep(1)
		need = b.start(required, required)
		b.expectWaiting("a minute later", need)
		b.expect("while the parser runs", b.start(optional), "", nil, 2)
		b.end(broken)
		b.expect("the second attempt", append(need, b.start(required)...), "", broken, 2)

		time.Sleep(minPause)
		b.expect("two minutes later, nothing requested", b.start(optional, optional), "", nil, 3)
		need = b.start(required)
		b.expectWaiting("a container that requests it, meanwhile", need)
		b.end(nil)
		b.expect("it works", append(need, b.start(optional, required)...), DefaultProfile, nil, 3)
	})
}

// TestProfileGone checks a profile that was removed or set to complain mode. It is loaded again before the next container starts. If it
// stays in complain mode, it is loaded at most once a minute.
func TestProfileGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newParserBench(t, "x (enforce)\n")
		first := b.start(optional)
		b.end(nil)
		b.expect("the first attempt", first, DefaultProfile, nil, 1)
		if err := setProfiles(b.Host, "x (enforce)\n"); err != nil {
			t.Fatal(err)
		}
		all := b.start(optional, required)
		b.expectWaiting("it is gone", all)
		b.end(nil)
		b.expect("it is back", append(all, b.start(optional)...), DefaultProfile, nil, 2)

		complains := DefaultProfile + " (complain)\n"
		if err := setProfiles(b.Host, complains); err != nil {
			t.Fatal(err)
		}
		b.expect("it complains just after", b.start(optional, required), DefaultProfile, nil, 2)
		time.Sleep(minPause)
		all = b.start(optional)
		b.expectWaiting("it complains a minute later", all)
		b.end(nil)
		b.expect("it is enforced", append(all, b.start(optional, required)...), DefaultProfile, nil, 3)

		if err := setProfiles(b.Host, ""); err != nil {
			t.Fatal(err)
		}
		all = b.start(optional)
		b.end(errNoParser)
		b.expect("gone, and so is the parser", all, "", nil, 4)
	})
}

// TestProfileOfBefore checks a profile that an earlier process has loaded. It is replaced in the background. If this fails, the old profile
// is still used.
func TestProfileOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newParserBench(t, DefaultProfile+" (enforce)\n")
		b.expect("at once", b.start(optional, required), DefaultProfile, nil, 1)
		b.end(errors.New("broken"))
		b.expect("it stays", b.start(optional, required), DefaultProfile, nil, 1)
		time.Sleep(minPause)
		b.expect("a minute later", b.start(optional, required), DefaultProfile, nil, 2)
		b.end(nil)
		time.Sleep(minPause)
		b.expect("replaced", b.start(optional, required), DefaultProfile, nil, 2)
	})
}
