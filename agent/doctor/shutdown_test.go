package doctor

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"
	"time"
)

func TestShutdown(t *testing.T) {
	const need = 30 * time.Second
	for _, tt := range []struct {
		name        string
		need, delay time.Duration
		err         error
		file        string // a file of the host
		want        Severity
		found       bool
	}{
		{name: "not configured", err: errors.New("no bus")},
		{name: "long enough", need: need, delay: need, want: OK, found: true},
		{name: "too short", need: need, delay: 5 * time.Second, want: Warning, found: true},
		{name: "no logind", need: need, err: errors.New("no bus"), want: Warning, found: true},
		{name: "OpenRC", need: need, err: errors.New("no bus"), file: "run/openrc/softlevel", want: OK, found: true},
		{name: "OpenRC beside another init", need: need, err: errors.New("no bus"), file: "sbin/openrc-run", want: Warning, found: true},
	} {
		f := fstest.MapFS{tt.file: &fstest.MapFile{}}
		p := &checkup{Input: Input{Host: f, ShutdownNeed: tt.need, Externals: Externals{ShutdownDelay: func(context.Context) (time.Duration, error) { return tt.delay, tt.err }}}}
		p.checkShutdown(t.Context())
		if found := len(p.findings) > 0; found != tt.found || found && p.findings[0].Severity != tt.want {
			t.Errorf("%s: %+v", tt.name, p.findings)
		}
	}
}
