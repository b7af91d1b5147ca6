package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// This environment variable makes the test program write rows until it is killed.
const childEnv = "ISLET_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		child(path)
	}
	if path := os.Getenv(openingEnv); path != "" {
		openingChild(path)
	}
	os.Exit(mountstest.MainIfRoot(m.Run))
}

// child writes and removes pods, objects, tokens and leases in several goroutines. When a row is durable, it reports the row on its
// standard output.
func child(path string) {
	s, err := Open(context.Background(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	if aside, yes := s.Rebuilt(); yes {
		fmt.Println("error rebuilt", aside)
		os.Exit(1)
	}
	run := os.Getpid()
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		os.Stdout.WriteString(fmt.Sprintf(format+"\n", args...)) // a single write(2) for each line
	}
	for g := range 4 {
		go func() {
			for i := 0; ; i++ {
				p := typical(fmt.Sprintf("%d-%d-%d", run, g, i))
				p.Seq = int64(i)
				err := s.UpdatePods(context.Background(), []Pod{p}, nil)
				say("pod %s", p.Pod.UID)
				if err == nil {
					if err = putSealed(s, string(p.Pod.UID)); err == nil {
						say("object %s", "o"+p.Pod.UID)
						say("token %s", "t"+p.Pod.UID)
					}
				}
				if i%3 == 2 && err == nil {
					old := types.UID(fmt.Sprintf("%d-%d-%d", run, g, i-1))
					say("removing %s", old)
					say("removing %s", "t"+old)
					if err = s.UpdatePods(context.Background(), nil, []types.UID{old}); err == nil {
						say("removed %s", old)
						say("removed %s", "t"+old)
					}
				}
				addr := netip.AddrFrom4([4]byte{10, byte(g), byte(i >> 8), byte(i)})
				if e := s.AddLease(context.Background(), addr, fmt.Sprint(run)); err == nil && e == nil {
					say("lease %s", addr)
				} else if err != nil || !errors.Is(e, os.ErrExist) {
					say("error %v %v", err, e)
				}
				if i%3 == 1 {
					leaseAndRelease(s, say,
						netip.AddrFrom16([16]byte{0xfd, byte(run >> 16), byte(run >> 8), byte(run), byte(g), byte(i >> 8), byte(i)}))
				}
				_ = s.PutStatus(p.Pod.UID, &v1.PodStatus{Phase: v1.PodRunning})
			}
		}()
	}
	select {}
}

// leaseAndRelease leases an address and releases it again. No other run of the child has the address.
func leaseAndRelease(s *Store, say func(format string, args ...any), addr netip.Addr) {
	owner := "sandbox " + addr.String()
	if err := s.AddLease(context.Background(), addr, owner); err != nil {
		say("error %v", err)
		return
	}
	say("lease %s", addr)
	say("removing %s", addr)
	if err := s.ReleaseLeases(context.Background(), owner); err != nil {
		say("error %v", err)
		return
	}
	say("removed %s", addr)
}

// TestNothingAcknowledgedIsLostByKill checks that a row whose write has returned is in the database after the process is killed. It kills
// the process 10 times, or 30 times with ISLET_TEST_LONG.
func TestNothingAcknowledgedIsLostByKill(t *testing.T) {
	rounds := 10
	if os.Getenv("ISLET_TEST_LONG") != "" {
		rounds = 30
	}
	path := filepath.Join(t.TempDir(), "islet.db")
	must(t, open(t, path).Close())
	is := map[string]bool{} // last acknowledged state of each row
	removing := map[string]bool{}
	for round := range rounds {
		acknowledged(t, path, rand.N(60*time.Millisecond), func(what, id string) bool {
			switch what {
			case "pod", "lease", "object", "token":
				is[id] = true
			case "removing":
				removing[id] = true
			case "removed":
				is[id] = false
			default:
				t.Fatalf("round %d: %s %s", round, what, id)
			}
			return false
		})
		s := open(t, path)
		if aside, yes := s.Rebuilt(); yes {
			t.Fatal("rebuilt", aside)
		}
		has := map[string]bool{}
		pods, err := s.Pods(t.Context())
		must(t, err)
		for _, p := range pods {
			has[string(p.Pod.UID)] = true
		}
		addSealed(t, s, has)
		leases, err := s.Leases(t.Context())
		must(t, err)
		for addr := range leases {
			has[addr.String()] = true
		}
		for id, want := range is {
			if has[id] != want && !(removing[id] && want) {
				t.Errorf("round %d: %s: has %v, was acknowledged %v", round, id, has[id], want)
			}
		}
		must(t, s.Close())
	}
	if len(is) < rounds {
		t.Error("too little was written for a result:", len(is))
	}
	t.Log(len(is), "rows were acknowledged")
}

// putSealed writes an encrypted object and a token for a pod. Their names contain the UID of the pod.
func putSealed(s *Store, uid string) error {
	err := s.PutObject(context.Background(), Object{ObjectKey: ObjectKey{"Secret", "default", uid}, Version: "1",
		Data: []byte("of " + uid)})
	if err != nil {
		return err
	}
	return s.PutToken(context.Background(), Token{TokenKey: TokenKey{UID: types.UID(uid), Seconds: 3607}, Token: "of " + uid})
}

// addSealed adds an entry for each object and token of putSealed to the map. The value is true if the row was decrypted and belongs to the
// right pod.
func addSealed(t *testing.T, s *Store, has map[string]bool) {
	t.Helper()
	objects, err := s.Objects(t.Context())
	must(t, err)
	for _, o := range objects {
		has["o"+o.Name] = string(o.Data) == "of "+o.Name
	}
	tokens, err := s.Tokens(t.Context())
	must(t, err)
	for _, k := range tokens {
		has["t"+string(k.UID)] = k.Token == "of "+string(k.UID)
	}
}

// acknowledged starts a child process and calls the given function for each report of the child. It kills the child when the function
// returns true, or when the time d has passed since the first report.
func acknowledged(t *testing.T, path string, d time.Duration, said func(what, id string) (enough bool)) {
	t.Helper()
	lines, kill, wait := startChild(t, childEnv, path)
	defer wait()
	var timer *time.Timer
	for lines.Scan() {
		if timer == nil {
			timer = time.AfterFunc(d, kill)
		}
		var what, id string
		if n, _ := fmt.Sscan(lines.Text(), &what, &id); n == 2 && said(what, id) {
			kill()
		}
	}
}

// startChild starts the test program as the child process that an environment variable selects. It returns the lines that the child prints,
// and functions that kill the child and wait for its end.
func startChild(t *testing.T, env, path string) (lines *bufio.Scanner, kill, wait func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+path)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	return bufio.NewScanner(out), func() { _ = cmd.Process.Kill() }, func() { _ = cmd.Wait() }
}
