package bundle

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/bundle/medium"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/image"
)

// Images imports and pins the images of bundles. *image.Service implements it.
type Images interface {
	ChooseBundleImage(img format.Image) (image.BundleImage, error)
	HasBundleImage(ctx context.Context, img image.BundleImage) bool
	// MissingBytes returns the number of bytes of the layers that an import would unpack.
	MissingBytes(ctx context.Context, l format.Layout, img image.BundleImage) (int64, error)
	ImportBundleImage(ctx context.Context, l format.Layout, img image.BundleImage, progress func(cri.ImportProgress)) error
	// PinImages replaces the names of the images that are never removed.
	PinImages(names []string)
}

// A Store stores the second copy of seen, the part of the record that survives the loss of bundle.json. *store.Store implements it.
type Store interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config configures Open.
type Config struct {
	Dir    string        // the state directory
	Policy format.Policy // the keys and the number of signatures that a bundle needs
	// HealthyFor and Deadline are the durations of a trial.
	HealthyFor, Deadline time.Duration
	Name                 string                   // of the node
	Labels               func() map[string]string // of the node
	Now                  func() time.Time         // the current time, corrected by signed times if the clock is behind
	IsSynced             func() bool              // whether Now is right, because the kernel's clock is synchronized
	Images               Images                   // nil with a remote runtime; the node then cannot use bundles
	Store                Store
	// RecordSigned is called when the trial of a bundle begins, with the time at which the bundle was signed. After that, Now may return a
	// later time than before. RecordSigned may be nil.
	RecordSigned func(context.Context, time.Time)
	// OpenSecret decrypts a Secret. It is nil if the node has no key for sealed Secrets.
	OpenSecret func(*sealed.Document) (*sealed.Secret, error)
	// Signer returns the private key that signs the state of the node.
	Signer func() (ed25519.PrivateKey, error)
	// CheckTrial returns an error while a configuration or a version of islet is on trial.
	CheckTrial func() error
	// CheckKeys returns an error if the keys in Policy may have been removed: then the node accepts only the bundles of persons.
	CheckKeys func() error
	Log       *slog.Logger

	Remote // the settings for bundles on web servers and in registries

	Pods
	crash func(step string) // tests panic in it to simulate a power cut; may be nil
}

// Pods gives access to the pods of the node. Connect sets it.
type Pods struct {
	Sink    source.ManifestSink
	List    func() []*v1.Pod // with their statuses
	Desired interface{ List() []desired.Pod }
	Objects interface{ List() []local.Info }
}

// facts gives access to facts about the node for its state document.
type facts struct {
	version  string                                   // of islet
	describe func(ctx context.Context, s *api.Status) // sets api.Status.Flash; may be nil
}

// A Node applies bundles to this node. Its methods may be called concurrently.
type Node struct {
	c      Config
	facts  facts
	medium *medium.Medium // nil without a label in the configuration
	found  bool           // bundle.json existed when the agent started
	err    error          // why the record cannot be used

	configurations Configurations // nil if the node cannot try configurations
	programs       Programs       // nil if the node cannot try versions of islet

	applying  gate          // held while a bundle is staged; a slow medium can take very long
	intact    digest.Digest // a bundle in use whose parts were complete since the start; the gate applying protects it
	waited    bool          // the trial of a bundle has waited for pods since the start; the gate applying protects it
	changing  sync.Mutex    // held while the record changes
	isHeld    bool          // no trial may begin; the mutex changing protects it
	mu        sync.Mutex    // protects the fields below; never held during I/O
	record    Record
	changed   chan struct{} // closed when the record changes
	staging   staging
	started   bool      // the loop is running
	interrupt func()    // ends the staging of a bundle that no person has requested; nil if there is none
	restarted time.Time // when the pods began to start again: the start of the agent, or a revert
	ctx       context.Context
	spawn     func(func() error)
	poke      chan struct{}

	connected servers
	servers   *feed.Opener      // opens bundles on servers
	follower  *feed.Follower    // nil without a followed source
	report    *api.BundleReport // nil without a URL for reports
}

// A staging is the bundle that is being staged.
type staging struct {
	progress string
	digest   digest.Digest // empty until the bundle is accepted
	images   []string
}

// Open reads the record, and pins the images of its bundles. Without a record it does nothing else. If the record cannot be read, Apply,
// Revert and Status return an error, and the pods of the bundle keep running unchanged.
func Open(c Config) *Node {
	n := &Node{c: c, applying: make(gate, 1), poke: make(chan struct{}, 1), changed: make(chan struct{})}
	n.openRemote()
	n.record, n.found, n.err = load(c.Dir)
	if n.err == nil && n.found && c.Images == nil {
		n.err = errRemote
	}
	if n.err == nil && n.found {
		n.pin()
	}
	return n
}

// InUse reports whether bundle.json existed when the agent started. If so, the agent waits until this source has reported its pods.
func (n *Node) InUse() bool { return n.found }

// Connect sets the pods of the node, and the packages that try the configurations and the versions of islet from bundles. c and u may be
// nil. It must be called before Start.
func (n *Node) Connect(p Pods, c Configurations, u Programs) {
	n.c.Pods, n.configurations, n.programs = p, c, u
}

// SetFacts sets the version of islet for the state document, and the function describe, which sets api.Status.Flash for this document.
// SetFacts must be called before Start.
func (n *Node) SetFacts(version string, describe func(ctx context.Context, s *api.Status)) {
	n.facts = facts{version, describe}
}

// Start starts the loop if a bundle is in use. Otherwise, the first bundle starts it. The function spawn starts a goroutine, which ends
// with ctx.
func (n *Node) Start(ctx context.Context, spawn func(func() error)) {
	n.mu.Lock()
	n.ctx, n.spawn, n.restarted = ctx, spawn, time.Now()
	n.mu.Unlock()
	if n.medium != nil {
		spawn(func() error { return n.medium.Run(ctx) })
	}
	switch {
	case n.err != nil:
		n.c.Log.Error("no bundle can be used", "error", n.err)
		n.c.Sink.ReportFailure(desired.Bundle, []desired.Problem{{Origin: File, Message: n.err.Error()}})
	case n.found:
		n.wake()
	}
	if n.err == nil {
		n.startRemote(ctx, spawn)
		n.startReports(ctx, spawn)
	}
}

// errRemote is returned on a node with a remote runtime.
var errRemote = errors.New(
	"containers run in the runtime at containerRuntimeEndpoint: only islet's own runtime can use bundles")

// wake starts the loop. If the loop is already running, wake makes it read the record again.
func (n *Node) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.started || n.spawn == nil {
		select {
		case n.poke <- struct{}{}:
		default:
		}
		return
	}
	ctx := n.ctx
	if ctx.Err() != nil { // the next start of the agent continues
		return
	}
	n.started = true
	n.spawn(func() error { return n.run(ctx) })
}

func (n *Node) now() Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.record
}

// change applies edit to a copy of the record, stores the result durably, and makes it the current record. The caller holds n.changing.
func (n *Node) change(edit func(r *Record) error) error {
	r := n.now()
	if err := edit(&r); err != nil {
		return err
	}
	r.forget()
	if err := r.save(n.c.Dir); err != nil {
		return fmt.Errorf("store the record of bundles: %w", err)
	}
	n.mu.Lock()
	n.record = r
	close(n.changed)
	n.changed = make(chan struct{})
	n.mu.Unlock()
	n.step("record")
	n.pin()
	return nil
}

// step is called after each durable write. In tests, it simulates a power cut.
func (n *Node) step(name string) {
	if n.c.crash != nil {
		n.c.crash(name)
	}
}

// pin pins the images of the bundles that the node keeps, and of the bundle that is being staged.
func (n *Node) pin() {
	if n.c.Images == nil {
		return
	}
	n.mu.Lock()
	names := slices.Clone(n.staging.images)
	for _, list := range n.record.Images {
		names = append(names, list...)
	}
	n.mu.Unlock()
	n.c.Images.PinImages(names)
}

// check returns an error if this node cannot use bundles.
func (n *Node) check() error {
	if n.err == nil && n.c.Images == nil {
		return errRemote
	}
	return n.err
}

// endStaging removes the folder and unpins the images of a bundle whose staging has ended, unless the bundle is now in the record.
func (n *Node) endStaging() {
	n.mu.Lock()
	n.staging = staging{}
	n.mu.Unlock()
	n.pin()
	if err := n.sweep(); err != nil {
		n.c.Log.Warn("the folders of old bundles could not be removed", "error", err)
	}
}

// errChanged is the error of a bundle whose staging has ended too late, such as after a revert.
var errChanged = errors.New("the bundle in use has changed since this one was verified (islet bundle status): " +
	"apply it again if you still want it")

// startTrial first writes seen to the database, and then renames the new record to bundle.json. With this rename, the bundle comes into
// force. The parameter before is the record at the beginning of the staging.
func (n *Node) startTrial(ctx context.Context, s *staged, before Record, allows rule) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.isHeld {
		return busyError{errors.New("a configuration or version of islet begins its trial: wait for its end (islet config show)")}
	}
	if err := n.checkReturning(); err != nil {
		return err
	}
	r, err := n.complete(ctx)
	if err != nil {
		return err
	}
	if r.differs(&before) {
		return errChanged
	}
	if err := errors.Join(allows(&r, s.Bundle), n.checkNames(s.set)); err != nil { // pods may have been added during the import
		return err
	}
	change, err := n.assignConfiguration(s)
	if err != nil {
		return err
	}
	recorded, now := s.signed, n.c.Now()
	if n.c.IsSynced() && !clock.IsPlausible(recorded, now) { // or all later bundles would count as expired, also if this one fails
		recorded = now
	}
	must, _ := n.chooseMust(&r, s)
	t := Trial{Bundle: s.Bundle, Must: must, Configuring: change != nil && change.Before != ""}
	r.Begin(t, s.images, change, recorded)
	if err = n.storeSeen(ctx, &r); err == nil {
		n.step("seen")
		// A call for a rejected bundle or one in force would undo islet clock reset, because that bundle stays on offer.
		if n.c.RecordSigned != nil {
			n.c.RecordSigned(ctx, s.signed)
		}
		err = n.change(func(to *Record) error {
			*to = r
			return nil
		})
	}
	if err != nil && t.Configuring {
		_, undo := n.configurations.AbandonBundle(change.ID)
		err = errors.Join(err, undo)
	}
	return err
}

// Revert ends the trial of a bundle, or returns to the bundle before the current one.
func (n *Node) Revert(context.Context) (api.Bundles, error) {
	if err := n.check(); err != nil {
		return api.Bundles{}, err
	}
	n.changing.Lock()
	err := n.checkReturn()
	if err == nil {
		err = n.change(func(r *Record) error { return r.Revert(n.c.Now()) })
		n.mu.Lock()
		n.restarted = time.Now()
		n.mu.Unlock()
	}
	n.changing.Unlock()
	if err == nil {
		err = n.sweep()
	}
	if err != nil {
		return api.Bundles{}, err
	}
	n.wake()
	return n.Status()
}

// HoldTrials prevents trials of bundles until ReleaseTrials is called. It returns false and does nothing if a bundle is on trial, or if the
// configuration of a reverted bundle is still in use. The only exception is the trial of this bundle's own configuration, whose ID is id.
// configure.Keeper calls HoldTrials before the trial of a configuration or of a version of islet.
func (n *Node) HoldTrials(id string) bool {
	n.changing.Lock()
	defer n.changing.Unlock()
	r := n.now()
	if n.check() != nil {
		r = Record{} // bundles cannot be used, so the trial in the record would never end
	}
	if r.Abandoned != "" || r.Trial != nil && !(r.Trial.Configuring && r.Configurations[r.Trial.Digest].ID == id) {
		return false
	}
	n.isHeld = true
	return true
}

// ReleaseTrials allows trials of bundles again.
func (n *Node) ReleaseTrials() {
	n.changing.Lock()
	defer n.changing.Unlock()
	n.isHeld = false
}

// Status returns the state of the bundles.
func (n *Node) Status() (api.Bundles, error) {
	if n.err != nil {
		return api.Bundles{}, n.err
	}
	n.mu.Lock()
	r, progress, follower, report := n.record, n.staging.progress, n.follower, n.report
	n.mu.Unlock()
	out := api.Bundles{Staging: progress, Highest: r.Highest, Report: report}
	if follower != nil {
		out.Source = follower.Status()
	}
	if r.Current != nil {
		out.Current = new(describeBundle(*r.Current))
	}
	if r.Previous != nil {
		out.Previous = new(describeBundle(*r.Previous))
	}
	if r.Trial != nil {
		out.Trial = new(describeBundle(r.Trial.Bundle))
		out.Must, out.Configuring = r.Trial.Must, r.Trial.Configuring
	}
	out.Configuration, out.Returning = n.describeConfiguration(&r), r.Abandoned != ""
	out.Last, out.Medium = r.Last.describe(), n.medium.Status()
	for _, d := range r.Failed {
		out.Failed = append(out.Failed, d.String())
	}
	return out, nil
}

// describe returns the outcome for the API, or nil.
func (o *Outcome) describe() *api.BundleOutcome {
	if o == nil {
		return nil
	}
	return &api.BundleOutcome{Bundle: describeBundle(o.Bundle), Result: o.Result, Why: o.Why, Time: o.Time}
}

// describeBundle returns the bundle for the API. It is not inlined, because that would enlarge the program.
//
//go:noinline
func describeBundle(b Bundle) api.Bundle {
	return api.Bundle{Name: b.Name, Number: b.Number, Digest: b.Digest.String()}
}
