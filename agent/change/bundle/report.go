package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	// reportFile contains the digest of the last report that a server has accepted. It is in the state directory.
	reportFile = "bundle-report.json"
	// reportSpread is the maximum delay of a report, because the trials of many nodes may end at the same time.
	reportSpread = 5 * time.Second
	// firstReportRetry and lastReportRetry are the maximum waits after the first failure and in a long outage.
	firstReportRetry, lastReportRetry = time.Minute, time.Hour
	// maxReportProblem is the maximum length of a problem, in bytes.
	maxReportProblem = 1 << 10
)

// A reporter sends the signed state of the node to a URL: once, and whenever a trial has begun or ended. A state that could not be sent is
// replaced by a later one. One goroutine runs it.
type reporter struct {
	*Node
	url    string
	client *http.Client
	sent   digest.Digest // of the last report that was accepted
	again  retry.Backoff
	said   string // the last problem that was logged
}

// startReports starts to send reports, if the configuration has a URL for them.
func (n *Node) startReports(ctx context.Context, spawn func(func() error)) {
	if n.c.ReportURL == "" {
		return
	}
	newClient := n.c.NewReportClient
	if newClient == nil {
		newClient = func() *http.Client { return download.NewClient(n.c.Now) }
	}
	r := &reporter{Node: n, url: n.c.ReportURL, client: newClient(),
		again: retry.Backoff{FirstWindow: firstReportRetry, SecondWindow: lastReportRetry, MaxWindow: lastReportRetry}}
	n.setReport(api.BundleReport{URL: feed.Redact(r.url)})
	spawn(func() error {
		r.run(ctx)
		return nil
	})
}

func (n *Node) setReport(s api.BundleReport) {
	n.mu.Lock()
	n.report = &s
	n.mu.Unlock()
}

func (r *reporter) run(ctx context.Context) {
	if err := r.load(); err != nil {
		r.c.Log.Warn("it is not known which state of the bundles was sent last: it is sent again", "error", err)
	}
	for ctx.Err() == nil {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		contents, updated := r.contents()
		if contents != r.sent {
			if !pause(ctx, retry.RandomWait(reportSpread)) || !pause(ctx, r.send(ctx)) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-updated:
		}
	}
}

// pause waits. It returns false if ctx has ended.
func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// contents identifies what must be reported. It changes when a trial of a bundle begins or ends, and with the URL. If the node follows an
// index of islet's versions, it also changes with their outcomes. The channel is closed when these may have changed.
func (r *reporter) contents() (digest.Digest, <-chan struct{}) {
	now := r.now()
	var known *versions
	var changed <-chan struct{}
	if r.programs != nil {
		known, changed = r.versions()
	}
	text, err := json.Marshal(struct {
		URL         string
		InForce     *Bundle
		IsTrial     bool
		LastOutcome *Outcome
		Versions    *versions `json:",omitempty"`
	}{r.url, now.InForce(), now.Trial != nil, now.Last, known})
	if err != nil {
		return "", changed
	}
	return digest.FromBytes(text), changed
}

// versions are the running version of islet and the outcomes of others.
type versions struct {
	Running string
	Updates *api.UpdateState
}

// versions returns nil if the node follows no index.
func (r *reporter) versions() (*versions, <-chan struct{}) {
	updates, changed := r.programs.Report()
	if updates == nil {
		return nil, nil
	}
	return &versions{r.facts.version, updates}, changed
}

// send sends the state. It returns the time to wait before the next attempt, which is 0 after success.
func (r *reporter) send(ctx context.Context) time.Duration {
	contents, _ := r.contents()
	text, err := r.Report(ctx)
	if err == nil {
		err = download.Post(ctx, r.client, r.url, "application/json", text)
	}
	if ctx.Err() != nil {
		return 0
	}
	status := api.BundleReport{URL: feed.Redact(r.url)}
	if err != nil {
		status.Problem = printable.Cut(err.Error(), maxReportProblem) // it may have a text of the server
		if status.Problem != r.said {
			r.c.Log.Warn("the state of the bundles cannot be sent: it is sent later", "url", status.URL, "reason", status.Problem)
		}
		r.said = status.Problem
		r.setReport(status)
		lost := download.UnreachableError{}
		_ = errors.As(err, &lost)
		return r.again.Next(lost.RetryAfter)
	}
	r.said, r.sent = "", contents
	r.again.Reset()
	status.Sent = r.c.Now().UTC()
	r.setReport(status)
	if err := r.save(); err != nil {
		r.c.Log.Warn("it cannot be stored that the state of the bundles was sent: it is sent again after a restart", "error", err)
	}
	return 0
}

func (r *reporter) load() error {
	data, err := os.ReadFile(filepath.Join(r.c.Dir, reportFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r.sent)
	}
	return err
}

func (r *reporter) save() error {
	data, err := json.Marshal(r.sent)
	if err != nil {
		return err
	}
	return durable.Write(filepath.Join(r.c.Dir, reportFile), data, 0o600)
}
