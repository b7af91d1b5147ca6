package change_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

// updater is a fake of the agent's updates. It succeeds unless the archive's name contains "bad".
type updater struct{}

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

// TestApplyEndless checks that islet config apply rejects an endless file before it sends data.
func TestApplyEndless(t *testing.T) {
	check(t, nil, run(t, nil, "", "config", "apply", "/dev/zero"), 1, "", "islet: /dev/zero is too large: a configuration may have at most 2 MiB\n")
}
