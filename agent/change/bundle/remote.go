package bundle

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/keyring"
)

// Names in the state directory.
const (
	downloadDir = "bundle-download"    // layers that are being fetched
	sourceFile  = "bundle-source.json" // the state of the followed source
)

// keepDownload is the time for which layers of an incomplete fetch are kept, as those of pulls are.
const keepDownload = 24 * time.Hour

// Remote describes how the node reaches bundles on servers.
type Remote struct {
	Source string        // the source that the node follows, or ""
	Every  time.Duration // the interval of its requests
	// ReportURL is the URL to which the node sends its state, or "".
	ReportURL string
	// NewReportClient returns the client for ReportURL. The default is the client of package download.
	NewReportClient func() *http.Client
	// OpenRepository resolves a reference with the registry settings of pulls. It may be nil.
	OpenRepository func(ctx context.Context, ref string, auth *api.AuthConfig) (feed.Repository, error)
	// ReadStored returns a document of an image that is on this node, or nil. It may be nil.
	ReadStored func(ctx context.Context, d ocispec.Descriptor) []byte
	// NewClient returns the client for https. The default is the client of package download.
	NewClient func() *http.Client
}

// A Keyring has the registry credentials of the node. *credentials.Credentials implements it.
type Keyring interface {
	Keyring(ctx context.Context, pod *v1.Pod, image string) keyring.Credentials
}

// servers contains what the access to servers needs. ConnectServers sets it before Start.
type servers struct {
	keyring    Keyring
	saveWrites func() bool
}

// ConnectServers sets the credentials for registries, and a function that reports whether no followed bundle must be fetched now, to reduce
// writes to the disk. It must be called before Start.
func (n *Node) ConnectServers(k Keyring, saveWrites func() bool) {
	n.connected = servers{k, saveWrites}
}

// openRemote prepares the access to servers. It makes no request, and opens no file.
func (n *Node) openRemote() {
	c := n.c.Remote
	if c.NewClient == nil {
		c.NewClient = func() *http.Client {
			if c.Source != "" {
				return download.NewPollClient(n.c.Now, c.Every)
			}
			return download.NewClient(n.c.Now)
		}
	}
	n.servers = feed.NewOpener(feed.Config{
		Dir: filepath.Join(n.c.Dir, downloadDir), NewClient: c.NewClient, OpenRepository: c.OpenRepository, Credentials: n.credentials,
		ReadKnown: n.readKnown, CheckSpace: n.checkSpace, Policy: &n.c.Policy,
	})
}

// startRemote starts to follow the source, if there is one. Otherwise it removes the layers of an old fetch later.
func (n *Node) startRemote(ctx context.Context, spawn func(func() error)) {
	if n.c.Source == "" {
		n.removeDownloadLater()
		return
	}
	n.mu.Lock()
	n.follower = feed.NewFollower(feed.FollowConfig{
		Source: n.c.Source, Every: n.c.Every, File: filepath.Join(n.c.Dir, sourceFile), Now: n.c.Now,
		SaveWrites: n.connected.saveWrites, Applier: n, Log: n.c.Log,
	})
	n.mu.Unlock()
	spawn(func() error {
		n.follower.Run(ctx)
		return nil
	})
}

// credentials returns the credentials of the node for a reference.
func (n *Node) credentials(ctx context.Context, ref string) (list []*api.AuthConfig, err error) {
	if n.connected.keyring == nil {
		return nil, nil
	}
	k := n.connected.keyring.Keyring(ctx, &v1.Pod{}, ref)
	all := k.Stored
	if k.RunPlugins != nil {
		var more []keyring.Credential
		more, err = k.RunPlugins(ctx)
		all = append(all, more...)
	}
	for _, c := range all {
		list = append(list, c.Auth)
	}
	return list, err
}

// readKnown returns a document that the node has: one of an image, or a file of a bundle in the record.
func (n *Node) readKnown(d ocispec.Descriptor) []byte {
	if n.c.ReadStored != nil {
		if data := n.c.ReadStored(context.Background(), d); data != nil {
			return data
		}
	}
	r := n.now()
	for _, b := range r.Keeps() {
		list, err := os.ReadDir(filepath.Join(n.c.Dir, foldersDir, folderName(b.Digest), filesDir))
		if err != nil {
			continue
		}
		for _, e := range list {
			info, err := e.Info()
			if err != nil || info.Size() != d.Size {
				continue
			}
			data, err := os.ReadFile(filepath.Join(n.c.Dir, foldersDir, folderName(b.Digest), filesDir, e.Name()))
			if err == nil && digest.FromBytes(data) == d.Digest {
				return data
			}
		}
	}
	return nil
}

// endFetch removes the layers that were fetched, unless the fetch can continue later.
func (n *Node) endFetch(ctx context.Context, q request, err error) {
	if !feed.Is(q.from) {
		return
	}
	if errors.Is(err, feed.ErrSame) { // nobody may continue what is left of another fetch
		if at, found := n.servers.LastWrite(); !found || !downloadExpired(at) {
			return
		}
	}
	if err != nil && (ctx.Err() != nil || errors.As(err, new(download.UnreachableError))) {
		n.removeDownloadLater()
		return
	}
	if err := n.servers.Remove(); err != nil {
		n.c.Log.Warn("the fetched layers of a bundle cannot be removed", "error", err)
	}
}

// downloadExpired reports whether nobody has continued an incomplete fetch for a day. The parameter is the time of its last progress.
func downloadExpired(at time.Time) bool {
	up, _ := clock.Uptime()
	return clock.IsExpired(at, time.Now(), keepDownload, up)
}

// removeDownloadLater removes the layers of an incomplete fetch when nobody has continued it for a day. A followed source continues it.
func (n *Node) removeDownloadLater() {
	at, found := n.servers.LastWrite()
	if !found || n.c.Source != "" {
		return
	}
	wait := max(keepDownload-time.Since(at), 0)
	if wait > keepDownload { // the clock is behind, or was ahead
		wait = clock.SettleTime
	}
	time.AfterFunc(wait, func() {
		if !n.applying.tryLock() { // its end calls this function again
			return
		}
		defer n.applying.unlock()
		if at, found := n.servers.LastWrite(); !found || !downloadExpired(at) {
			if found && wait == clock.SettleTime { // the clock may be right now
				n.removeDownloadLater()
			}
			return
		}
		if err := n.servers.Remove(); err != nil {
			n.c.Log.Warn("the fetched layers of a bundle cannot be removed", "error", err)
		}
	})
}
