package change_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli/clitest"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

// updater is a fake of the agent's updates. It succeeds unless the archive's name contains "bad".
type updater struct{ status api.UpdateStatus }

func (updater) Update(_ context.Context, from string, o api.UpdateOptions,
	tell func(status string, current, total int64)) (api.Update, error) {
	tell("downloading", 0, 20)
	tell("downloading", 20, 20)
	if strings.Contains(from, "bad") {
		return api.Update{}, errors.New("the archive\nis \x1b[31mbad")
	}
	tell("testing", 0, 0)
	u := api.Update{Version: "9.0.0"}
	if o.Older {
		u.Version = "0.0.1"
	}
	if o.DespitePods {
		u.Version = "9.0.1"
	}
	if !o.Dry {
		u.ID = "islet-9.0.0-abc"
	}
	return u, nil
}

func (u updater) Status() api.UpdateStatus { return u.status }

// TestUpdate checks that progress is printed to standard error. Progress and errors contain neither the password of a URL nor control
// characters.
func TestUpdate(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) { c.Updates = updater{} })
	const seen = "islet.tar.gz: downloading\nislet.tar.gz: testing\n"
	check(t, n, run(t, n, "", "update", "--dry-run", "islet.tar.gz"), 0, "version 9.0.0 can be tried\n", seen)
	check(t, n, run(t, n, "", "update", "--no-wait", "--older", "https://me:secret@example.com/a/islet.tar.gz?token=secret"), 0,
		"version 0.0.1 will be tried: islet config show\n", seen)
	check(t, n, run(t, n, "", "update", "--dry-run", "--despite-pods", "-q", "islet.tar.gz"), 0, "version 9.0.1 can be tried\n", "")
	check(t, n, run(t, n, "", "update", "--dry-run", "-q", "islet.tar.gz"), 0, "version 9.0.0 can be tried\n", "")
	check(t, n, run(t, n, "", "update", "bad"), 1, "", "bad: downloading\nislet: the archive\n  is ?[31mbad\n")
	for _, args := range [][]string{{"update"}, {"update", "a", "b"}, {"update", ""}} {
		if r := run(t, n, "", args...); r.Code != 2 || r.Out != "" || !strings.Contains(r.Err, "needs one archive") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// TestUpdateStatus checks the output of islet update status, which has no control characters.
func TestUpdateStatus(t *testing.T) {
	at := clitest.Now
	for want, s := range map[string]api.UpdateStatus{
		"Version:   0.2.0\n": {Version: "0.2.0"},
		"Version:   0.2.0\nFollows:   https://example.com/islet.tar.gz\nChecked:   2026-01-02T03:04:05Z\nProblem:   503 ?[2J\n": {
			Version: "0.2.0", Archive: "https://example.com/islet.tar.gz", Checked: at, Problem: "503\n\x1b[2J"},
		"Version:   0.2.0\nFollows:   https://example.com/islet.index\nChecked:   2026-01-02T03:04:05Z\n" +
			"Offered:   0.3.0\nRing:      first\nState:     waiting\nReason:    the ring opens later\nUntil:     2026-01-02T04:04:05Z\n": {
			Version: "0.2.0", Index: "https://example.com/islet.index", Checked: at, Offered: "0.3.0", Ring: "first", State: "waiting",
			Reason: "the ring opens later", Until: at.Add(time.Hour)},
		"Version:   0.3.0\nTrial:     a version is on trial: the node returns to the previous version if the trial fails\n" +
			"Offered:   0.3.0\nState:     installed\n": {
			Version: "0.3.0", Offered: "0.3.0", State: "installed", Report: api.UpdateState{OnTrial: true}},
	} {
		n, _ := servertest.Start(t, func(c *server.Config) { c.Updates = updater{s} })
		check(t, n, run(t, n, "", "update", "status"), 0, want, "")
		if r := run(t, n, "", "update", "status", "-o", "json"); r.Code != 0 || !strings.Contains(r.Out, `"version": "`+s.Version+`"`) {
			t.Errorf("%+v", r)
		}
	}
}

// TestApplyEndless checks that islet config apply rejects an endless file before it sends data.
func TestApplyEndless(t *testing.T) {
	check(t, nil, run(t, nil, "", "config", "apply", "/dev/zero"), 1, "", "islet: /dev/zero is too large: a configuration may have at most 2 MiB\n")
}
