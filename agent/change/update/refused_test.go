package update

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// TestRefused checks that each later check of a version that failed its trial reads only the release file and logs nothing. An operator may
// request another trial, and a newer version is tried.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, key := stager(t)
		var logged bytes.Buffer
		s.Log = slog.New(slog.NewTextHandler(&logged, nil))
		dir := t.TempDir()
		file := archive(t, dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, "good"), key)
		asked, offered, failed := 0, "", ""
		u := New(Config{
			Stager: *s, Follow: file, Every: 24 * time.Hour, StagedPath: func() string { return "" },
			IsRefused: func(version, sum string) bool { asked++; return version+sum == failed },
			Offer: func(s *StagedProgram, _ string, anew bool) (string, bool, error) {
				offered += s.Version + " "
				failed = s.Version + s.Sum
				return "islet-" + s.Version, true, nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- u.Run(ctx) }()
		synctest.Wait()
		if offered != "0.2.0 " || asked != 1 {
			t.Fatalf("offered %q, %d checks\n%s", offered, asked, &logged)
		}
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil { // the agent would log an error if it read the archive
			t.Fatal(err)
		}
		logged.Reset()
		time.Sleep(10 * 24 * time.Hour)
		synctest.Wait()
		if offered != "0.2.0 " || asked != 11 || logged.Len() > 0 {
			t.Errorf("offered %q, %d checks\n%s", offered, asked, &logged)
		}
		if _, err := u.Update(t.Context(), file, api.UpdateOptions{}, nil); err == nil {
			t.Error("the archive is not read for an operator's request")
		}
		if err := os.WriteFile(file, whole, 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := u.Update(t.Context(), file, api.UpdateOptions{}, nil); err != nil || out.ID != "islet-0.2.0" || offered != "0.2.0 0.2.0 " {
			t.Errorf("an operator's repeated request: %+v, %v, offered %q", out, err, offered)
		}
		archive(t, dir, "islet.tar.gz", "0.3.0", runtime.GOARCH, program(t, "other"), key)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if offered != "0.2.0 0.2.0 0.3.0 " {
			t.Errorf("offered %q\n%s", offered, &logged)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
