package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/led"
	"github.com/islet-edge/islet/internal/retry"
)

// Reasons of the events.
const (
	reasonRefused = "SetupRefused"
	reasonSecrets = "SetupSecretsRemain"
)

const (
	patience    = 2 * time.Minute // the time to join before a person at the board is told
	reportEvery = time.Minute
	firstRetry  = time.Minute // after the secrets could not be removed
	lastRetry   = time.Hour
)

// A Link is the link to the API server. *link.Link implements it.
type Link interface {
	State() link.State
	Server() string
	Now() time.Time
	Changed() kube.LinkSignal
}

// Config configures Watch.
type Config struct {
	State string // the state directory
	Link  Link
	// Warn sends an event on the Node.
	Warn    func(reason, message string)
	Console string // the path of the console
	Log     *slog.Logger

	ledDir string // tests set it
}

// Watch waits until a board that was set up by an islet.yaml has joined its cluster, and then removes the secrets from that file. It first
// obtains the CA of the cluster, if the file has only its hash. It tells a person at the board if the board cannot join. It returns at once
// on every other node.
func Watch(ctx context.Context, c Config) error {
	r, err := load(c.State)
	if err != nil {
		c.Log.Error("cannot read the record of the setup", "error", err)
		return nil
	}
	if r.Refused != nil {
		c.Log.Warn("islet setup has found a mistake", "file", r.Refused.File, "reason", r.Refused.String())
		c.Warn(reasonRefused, r.Refused.String())
	}
	if r.Server == "" || r.Removed || len(r.Pending) > 0 {
		return nil
	}
	if c.ledDir == "" {
		c.ledDir = led.Dir
	}
	w := &watch{Config: c, r: r, led: led.New(c.ledDir, boardLED(c.ledDir, r.LED)), began: time.Now()}
	_ = w.led.SetBack(r.Before) // a previous agent has set heartbeat
	for _, step := range []func(context.Context) error{w.discover, w.awaitLink, w.removeSecrets} {
		if err := step(ctx); err != nil {
			return nil // ctx has ended
		}
	}
	return nil
}

type watch struct {
	Config
	r     *record
	led   *led.LED
	began time.Time

	told   string // the last text on the console
	toldAt time.Time
}

// report tells a person at the board why it has not joined. It reports nothing before the board had time to join. It returns the time after
// which it must be called again.
func (w *watch) report(why string) (again time.Duration) {
	if w.r.Joined {
		return reportEvery
	}
	if wait := patience - time.Since(w.began); wait > 0 {
		return wait
	}
	if wait := reportEvery - time.Since(w.toldAt); wait > 0 && w.told != "" {
		return wait
	}
	if why != w.told {
		w.told, w.toldAt = why, time.Now()
		tell(w.Console, fmt.Sprintf("%s has not joined %s: %s", w.name(), w.r.Server, why))
		w.Log.Warn("the board has not joined its cluster", "server", w.r.Server, "reason", shorten(why))
		if w.led.Set(led.Heartbeat) == nil && w.led.Before() != w.r.Before { // otherwise only the console and the log report it
			w.r.Before = w.led.Before()
			w.store(func(r *record) { r.Before = w.r.Before })
		}
	}
	return reportEvery
}

func (w *watch) name() string {
	if w.r.Name == "" {
		return "this board"
	}
	return w.r.Name
}

// awaitLink returns when the link to the server of the file is up.
func (w *watch) awaitLink(ctx context.Context) error {
	changed := w.Link.Changed().C
	for {
		s, server := w.Link.State(), w.Link.Server()
		if s.Phase == link.Up && server == w.r.Server {
			_ = w.led.Restore() // there is no LED, or it was never set
			if !w.r.Joined {
				tell(w.Console, fmt.Sprintf("%s has joined %s", w.name(), w.r.Server))
				w.store(func(r *record) { r.Joined, r.Before = true, "" })
			}
			return nil
		}
		if s.Phase == link.Up {
			s.Message = "its credentials belong to " + server
		}
		timer := time.NewTimer(w.report(s.Message))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// removeSecrets removes the secrets from the file. While the boot partition takes no writes, it tries again.
func (w *watch) removeSecrets(ctx context.Context) error {
	said := ""
	backoff := retry.Backoff{FirstWindow: firstRetry, SecondWindow: lastRetry, MaxWindow: lastRetry}
	for {
		err := w.r.removeSecrets()
		switch {
		case err == nil:
			if len(w.r.Secrets) > 0 {
				w.Log.Info("the secrets were removed from the file of the boot partition", "file", w.r.File)
			}
			w.store(func(r *record) { r.Removed = true })
			return nil
		case errors.Is(err, errEdited):
			w.Log.Warn("the file of the boot partition was edited, and is applied at the next start", "file", w.r.File)
			return nil
		case errors.Is(err, unix.EROFS):
			err = fmt.Errorf("%w: mount its file system writable", err)
		}
		if text := err.Error(); text != said {
			said = text
			w.Log.Warn("the secrets of a file of the boot partition cannot be removed", "file", w.r.File, "error", err)
			if !errors.Is(err, fs.ErrNotExist) { // a missing file was removed, or its partition is not mounted
				w.Warn(reasonSecrets, "the secrets in "+w.r.File+" were used, and cannot be removed: "+shorten(text))
			}
		}
		if _, err := backoff.Wait(ctx, 0, nil); err != nil {
			return err
		}
	}
}

// store changes the record on the disk like update.
func (w *watch) store(change func(*record)) {
	if err := w.update(func(r *record) error { change(r); return nil }); err != nil {
		w.Log.Error("cannot store the record of the setup", "error", err)
	}
}

// update changes the record on the disk, unless another file was applied meanwhile, also one that differs only in its secrets.
func (w *watch) update(change func(*record) error) error {
	unlock, err := lock(w.State)
	if err != nil {
		return fmt.Errorf("lock the state directory: %w", err)
	}
	defer unlock()
	now, err := load(w.State)
	if err != nil || now.Digest != w.r.Digest || !now.Time.Equal(w.r.Time) || !slices.Equal(now.Secrets, w.r.Secrets) {
		return err
	}
	if err := change(now); err != nil {
		return err
	}
	return now.store(w.State)
}
