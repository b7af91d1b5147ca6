package configure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/edge/configsource"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/keys"
)

// A Follower offers the configuration of a ConfigMap to the Keeper. The node's own files can name the ConfigMap. If
// they do not, an annotation of the Node can name one in kube-system. So only users with write access to kube-system
// can configure the node through the annotation.
type Follower struct {
	keeper       *Keeper
	source       *configsource.Source
	changeSignal chan struct{} // capacity 1

	mu              sync.Mutex
	namespace, name string
	nameKnown       bool // the Node was read, or the node's own files name a ConfigMap
}

// NewFollower returns a Follower. It makes no network call. A value on the channel retry means that the API server
// may be reachable again.
func NewFollower(k *Keeper, client *kube.Client, retry kube.LinkSignal, log *slog.Logger) (*Follower, error) {
	f := &Follower{keeper: k, changeSignal: make(chan struct{}, 1)}
	if own := &k.c.Edge.Configuration; own.ConfigMap != "" {
		f.namespace, f.name, _ = own.Object() // the content has been validated
		f.nameKnown = true
	}
	var err error
	f.source, err = configsource.New(configsource.Config{Client: client, WantedName: f.wantedName, OnNone: f.offerOwnFiles,
		Changed: f.changeSignal, Receive: f.offerConfigMap, OnProblem: f.reportProblem, Retry: retry, Log: log})
	return f, err
}

func (f *Follower) wantedName() (namespace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.namespace, f.name
}

// Node sets the current Node object, whose annotation may name the ConfigMap. It does not block.
func (f *Follower) Node(n *v1.Node) {
	if f.keeper.c.Edge.Configuration.ConfigMap != "" {
		return
	}
	namespace, name := "", ""
	if text := n.Annotations[keys.FollowConfigMap]; text != "" {
		var err error
		namespace, name, err = config.ConfigMapName(text)
		if err == nil && namespace != metav1.NamespaceSystem {
			err = fmt.Errorf("%q is not in %s", text, metav1.NamespaceSystem)
		}
		if err != nil {
			f.keeper.SetFollowed(FollowedSource{Source: "the annotation " + keys.FollowConfigMap, Problem: err.Error()})
			return
		}
	}
	f.mu.Lock()
	same := f.nameKnown && f.namespace == namespace && f.name == name
	f.namespace, f.name, f.nameKnown = namespace, name, true
	f.mu.Unlock()
	if !same {
		select {
		case f.changeSignal <- struct{}{}:
		default:
		}
	}
}

// Run follows the ConfigMap until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	return f.source.Run(ctx)
}

// offerOwnFiles offers the node's own files for a trial if no ConfigMap is followed any more, but the configuration
// in use came from one.
func (f *Follower) offerOwnFiles() {
	f.mu.Lock()
	known := f.nameKnown
	f.mu.Unlock()
	k := f.keeper
	if !known {
		return
	}
	k.SetFollowed(FollowedSource{})
	k.mu.Lock()
	good := k.record.Good
	k.mu.Unlock()
	var err error
	if good.IsLocal() || good.Source.Name == "" {
		err = k.stopFollowing()
	} else {
		err = k.offer(trial.New("", "", nil, trial.Source{}, k.c.Now()), good.Consent, false, false)
	}
	if err != nil && !errors.Is(err, ErrBusy) {
		k.c.Log.Warn("cannot return to the node's own files", "error", err)
	}
}

// stopFollowing records that the node no longer follows a ConfigMap.
func (k *Keeper) stopFollowing() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.record
	if k.record.StopFollowing() {
		return k.saveRecord(before)
	}
	return nil
}

func (f *Follower) sourceLabel() string {
	namespace, name := f.wantedName()
	return "ConfigMap " + namespace + "/" + name
}

func (f *Follower) reportProblem(why string) {
	f.keeper.SetFollowed(FollowedSource{Source: f.sourceLabel(), Problem: why})
}

// offerConfigMap offers the configuration of a ConfigMap.
func (f *Follower) offerConfigMap(cm *v1.ConfigMap) {
	k := f.keeper
	from := trial.Source{Namespace: cm.Namespace, Name: cm.Name, UID: string(cm.UID), ResourceVersion: cm.ResourceVersion}
	c := trial.New(cm.Data[KubeletKey], cm.Data[EdgeKey], k.c.Edge.Configuration.Consent, from, k.c.Now())
	if strings.TrimSpace(c.Kubelet+c.Edge) == "" {
		f.reportProblem(fmt.Sprintf("it has neither a key %s nor a key %s", KubeletKey, EdgeKey))
		return
	}
	if bundle := k.bundleSource(); bundle != "" {
		why := fmt.Sprintf("the node already uses the configuration of %s: remove kubelet.yaml and edge.yaml from the next bundle, "+
			"or stop following the ConfigMap", bundle)
		f.reportProblem(why)
		k.c.Events.Node(v1.EventTypeWarning, ReasonRefused, fmt.Sprintf("configuration %s from %s was rejected: %s", c.ID, from, why))
		return
	}
	// ErrBusy needs no log line, because the ConfigMap is offered again after the trial.
	if err := k.Offer(c, false, false); err != nil && !errors.Is(err, ErrBusy) {
		k.c.Log.Warn("a configuration was rejected", "configuration", c.ID, "from", from.String(), "error", err)
	}
}
