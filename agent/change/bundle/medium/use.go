package medium

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/led"
)

// use offers the bundles of a mounted medium to the node, waits for the end of the trial, and writes the result. The parameter err is the
// error of the mount. The session ends.
func (m *Medium) use(ctx context.Context, s *session, d device, mounted response, err error) {
	m.c.Log.Info("a medium with the label for bundles", "device", d.name, "fileSystem", mounted.FileSystem)
	out := api.BundleMedium{Device: d.name, Result: Working}
	m.show(out)
	m.logLED(m.led.Set(led.Blinking))
	if err == nil {
		err = m.apply(ctx, s, mounted.Names, &out)
	}
	if ctx.Err() != nil { // the next start of the agent examines the medium again
		return
	}
	if err != nil {
		out.Result, out.Why = Refused, advise(err).Error()
	}
	m.show(out)
	trigger := led.On
	if out.Why != "" || out.Result == Nothing {
		trigger = led.Heartbeat
	}
	defer func() { m.logLED(m.led.Set(trigger)) }() // when the node does not need the stick any more
	if out.Why == "" {
		m.c.Log.Info("the medium is done", "device", d.name, "result", out.Result)
	} else {
		m.c.Log.Error("the bundle on the medium is not in use", "device", d.name, "result", out.Result, "reason", out.Why)
	}
	if !m.c.Result || mounted.FileSystem == iso9660 {
		return
	}
	if err := m.writeResult(ctx, d); err != nil && ctx.Err() == nil {
		m.c.Log.Warn("the result cannot be written to the medium", "device", d.name, "error", err)
	}
}

// show sets the status.
func (m *Medium) show(out api.BundleMedium) {
	out.Time = m.c.Now().UTC()
	m.mu.Lock()
	m.status = &out
	m.mu.Unlock()
}

// apply starts the trial of the newest bundle, closes the session, and waits for the end of the trial.
func (m *Medium) apply(ctx context.Context, s *session, names []string, out *api.BundleMedium) error {
	defer s.close()
	if len(names) == 0 {
		out.Result = Nothing
		return nil
	}
	var offers []Offer
	for _, name := range names {
		offers = append(offers, Offer{name, func() (format.Layout, error) { return s.openLayout(name) }})
	}
	b, err := m.applyNewest(ctx, offers, out)
	if err != nil {
		return err
	}
	if b.InUse {
		out.Result = InUse
		return nil
	}
	m.show(*out)
	s.close()
	last, err := m.c.Bundles.AwaitTrial(ctx)
	if err != nil {
		return err
	}
	if last == nil || last.Digest != b.Digest {
		return errors.New("another bundle was applied meanwhile")
	}
	out.Result, out.Why = last.Result, last.Why
	return nil
}

// applyNewest starts the trial of the newest bundle. It waits while the node is busy.
func (m *Medium) applyNewest(ctx context.Context, offers []Offer, out *api.BundleMedium) (b api.Bundle, err error) {
	for {
		if _, err := m.c.Bundles.AwaitTrial(ctx); err != nil {
			return b, err
		}
		if out.File, b, err = m.c.Bundles.ApplyNewest(ctx, offers); out.File != "" {
			out.Bundle = &b
		}
		if !errors.Is(err, ErrBusy) {
			return b, err
		}
		select {
		case <-time.After(m.c.busyPause):
		case <-ctx.Done():
			return b, ctx.Err()
		}
	}
}

// advise adds advice to an error of a medium that is gone or defective.
func advise(err error) error {
	for _, number := range []error{unix.EIO, unix.ENODEV, unix.ENXIO} {
		if errors.Is(err, number) {
			return fmt.Errorf("the medium was pulled out too early, or is defective: the pods have not changed: plug it in again: %w", err)
		}
	}
	return err
}

// writeResult mounts the medium again and writes the result file alone.
func (m *Medium) writeResult(ctx context.Context, d device) error {
	report, err := m.c.Bundles.Report(ctx)
	if err != nil {
		return err
	}
	s, err := startSession(ctx, m.c.answerTime)
	if err != nil {
		return err
	}
	defer s.close()
	a, _, err := s.do(request{Do: "mount", Device: d.node, Label: m.c.Label, Writable: true}, nil)
	if err == nil && a.FileSystem == "" {
		err = errors.New("it has another label now")
	}
	if err == nil {
		_, _, err = s.do(request{Do: "write", Name: "islet-" + m.c.Node + ".json", Data: report}, nil)
	}
	if err == nil {
		_, _, err = s.do(request{Do: "unmount"}, nil)
	}
	return err
}
