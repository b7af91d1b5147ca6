package node

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// A shelf is a server on the loopback interface of a machine. It serves one archive of islet and its release.
type shelf struct {
	*httptest.Server
	u *updates

	mu      sync.Mutex
	version string         // empty: the server responds with 503
	asked   map[string]int // number of requests, by version and file extension
}

// shelf starts a server without a version. Agents that start afterwards trust its certificate.
func (u *updates) shelf() *shelf {
	u.Helper()
	s := &shelf{u: u, asked: map[string]int{}}
	s.Server = serveTrusted(u, u.m, s)
	return s
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[s.version+path.Ext(r.URL.Path)]++
	if s.version == "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	http.ServeFile(w, r, s.file(s.version)+strings.TrimPrefix(r.URL.Path, "/islet.tar.gz"))
}

func (s *shelf) file(version string) string { return s.u.m.Disk + "/" + version + ".tar.gz" }

// pack creates the archive and the release of a version. To serve the version, the test calls put().
func (s *shelf) pack(version string, program []byte) {
	s.u.Helper()
	s.u.Release(s.file(version), version, program)
}

// put selects the version that the server serves.
func (s *shelf) put(version string) {
	s.mu.Lock()
	s.version = version
	s.mu.Unlock()
}

// The first method returns the number of requests for the release of a version. The second method returns the number of downloads of the
// version's archive.
func (s *shelf) releases(version string) int { return s.count(version + ".release") }
func (s *shelf) archives(version string) int { return s.count(version + ".gz") }

func (s *shelf) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[what]
}

// looked waits until the node has requested the release of a version more than n times and has processed the response.
func (s *shelf) looked(version string, n int) {
	s.u.Helper()
	s.u.m.Await("a look for "+version, func() bool { return s.releases(version) > n })
	s.u.m.Await("the end of the look", func() bool { // an update by command waits until the node has processed the response
		out, _ := s.u.m.Try("update", s.u.m.Disk+"/none")
		return strings.Contains(out, "no such file")
	})
}

// ended waits until the trial of a version has ended. It returns the reason for the failure, or "" if the version is kept.
func (u *updates) ended(version string) (why string) {
	u.Helper()
	u.m.Await("the end of the trial of "+version, func() bool {
		s, ok := show(u.m)
		if !ok || s.Trying || len(s.History) == 0 {
			return false
		}
		last := s.History[len(s.History)-1]
		why = last.Why
		return strings.HasPrefix(last.ID, "islet-"+version+"-")
	})
	return why
}

// TestUpdateFollowed checks that a node updates itself from the archive in its configuration. It must find a version as soon as the server
// responds, and keep a good one. It must roll back from a broken version and never download this version again, even after a restart. A
// command must install another version from the server at once.
func TestUpdateFollowed(t *testing.T) {
	t.Parallel()
	u := bootUpdates(t)
	s := u.shelf()
	s.pack("9.1.0", u.BuildVersion("9.1.0")) // builds the version now, because a build may take longer than the second request
	s.pack("9.2.0", u.fails("9.2.0", "crash"))
	u.start(quickly, fmt.Sprintf("{keys: [%s], archive: %s/islet.tar.gz, every: 24h}", u.Public, s.URL))
	u.m.Await("the first look", func() bool { return s.releases("") > 0 })
	s.put("9.1.0")
	s.looked("9.1.0", 0) // the interval is a day, but the node soon retries a failed request
	if why := u.ended("9.1.0"); why != "" {
		t.Errorf("9.1.0 failed: %s", why)
	}
	u.as("9.1.0")
	s.looked("9.1.0", 1) // requested by 9.1.0, which is not older than the release

	s.put("9.2.0")
	for range 3 {
		u.m.Kill()
		before := s.releases("9.2.0")
		u.m.StartAgent()
		s.looked("9.2.0", before)
		if before == 0 {
			if why := u.ended("9.2.0"); !strings.Contains(why, "the agent ended") {
				t.Errorf("9.2.0 failed: %q", why)
			}
			s.looked("9.2.0", 1) // requested by the agent that started after the trial
		}
		u.as("9.1.0")
	}
	if got, _ := show(u.m); len(got.History) != 2 || got.FailedUpdate == nil || s.archives("9.2.0") != 1 || s.archives("9.1.0") != 1 {
		t.Errorf("9.2.0 was fetched %d times, 9.1.0 %d times: %+v", s.archives("9.2.0"), s.archives("9.1.0"), got)
	}
	if out, code := u.m.Try("status"); code == 0 || !strings.Contains(out, "has failed, islet 9.1.0 keeps running") {
		t.Errorf("status: code %d, %s", code, out)
	}

	s.pack("9.3.0", u.BuildVersion("9.3.0"))
	s.put("")
	if out, code := u.m.Try("update", s.URL+"/islet.tar.gz"); code != 1 || !strings.Contains(out, "503") {
		t.Errorf("islet update from a server that responds with 503: code %d, %s", code, out)
	}
	s.put("9.3.0")
	if out, code := u.m.Try("update", s.URL+"/islet.tar.gz"); code != 0 || !strings.Contains(out, "version 9.3.0 is installed and runs") {
		t.Errorf("islet update from a server: code %d, %s", code, out)
	}
	u.as("9.3.0")
}

// TestUpdateKeys checks that the trusted keys of a node can be replaced through its configuration. At first the node accepts only archives
// of the old key. Then it accepts archives of one or both keys, according to the threshold. At last it accepts only archives of the new
// key. A configuration without consent must not change the keys.
func TestUpdateKeys(t *testing.T) {
	t.Parallel()
	u := newUpdates(t, quickly)
	oldKey, newKey := u.Key, filepath.Join(t.TempDir(), "key")
	newPublic := u.NewKey(newKey)
	archives := map[string]string{}
	program := u.fails("9.0.0", "hang")
	for name, keys := range map[string][]string{"the old": {oldKey}, "the new": {newKey}, "both": {oldKey, newKey}} {
		archives[name] = u.m.Disk + "/" + strings.ReplaceAll(name, " ", "-") + ".tar.gz"
		u.ReleaseFor(archives[name], "9.0.0", runtime.GOARCH, program, keys...)
	}
	takes := func(when string, signed map[string]string) {
		t.Helper()
		for name, why := range signed {
			out, code := u.m.Try("update", "--dry-run", archives[name])
			if why == "" && code != 0 || why != "" && (code != 1 || !strings.Contains(out, why)) {
				t.Errorf("%s, signed by %s: code %d, %s", when, name, code, out)
			}
		}
	}
	send := func(keys string, threshold int) string {
		return fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nupdate: {keys: [%s], threshold: %d}\n", keys, threshold)
	}
	consent := func(keys string, threshold int) {
		t.Helper()
		if out, code := apply(u.m, send(keys, threshold), "--consent=edge.update"); code != 0 {
			t.Fatalf("code %d, %s", code, out)
		}
	}
	takes("at first", map[string]string{"the old": "", "the new": "signed by 0 of the node's keys", "both": ""})

	if out, code := apply(u.m, send(u.Public+", "+newPublic, 1)); code != 1 ||
		!strings.Contains(out, "edge.update: Forbidden: it belongs to the node") {
		t.Errorf("without consent: code %d, %s", code, out)
	}
	consent(u.Public+", "+newPublic, 1)
	takes("with one of two", map[string]string{"the old": "", "the new": "", "both": ""})
	consent(u.Public+", "+newPublic, 2)
	takes("with two of two", map[string]string{"the old": "signed by 1 of the node's keys", "the new": "but 2 are required", "both": ""})

	consent(newPublic, 1)
	after := map[string]string{"the old": "signed by 0 of the node's keys", "the new": "", "both": ""}
	takes("with the new", after)
	good := u.m.Disk + "/good.tar.gz"
	u.ReleaseFor(good, "9.1.0", runtime.GOARCH, u.BuildVersion("9.1.0"), newKey)
	if out := u.m.Islet("update", good); !strings.Contains(out, "version 9.1.0 is installed and runs") {
		t.Error(out)
	}
	u.as("9.1.0")
	u.m.Kill()
	u.m.StartAgent()
	u.ReleaseFor(archives["the old"], "9.2.0", runtime.GOARCH, u.fails("9.2.0", "hang"), oldKey)
	u.ReleaseFor(archives["the new"], "9.2.0", runtime.GOARCH, u.fails("9.2.0", "hang"), newKey)
	delete(after, "both")
	takes("as another version", after)
	u.as("9.1.0")
}
