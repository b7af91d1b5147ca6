package portmap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
)

// record is the content of a pod's file.
type record struct {
	Mappings  []Mapping    `json:"mappings"`
	Addresses []netip.Addr `json:"addresses"`
}

// Table manages an nftables table, which contains the host ports of all pods and the masquerading of their networks. Its methods are safe
// for concurrent use.
type Table struct {
	ns           netns.NS
	name         string
	podInterface string
	dir          string

	mu       sync.Mutex
	networks []netip.Prefix
	ports    map[string][]nft.Port
	changed  uint64                // number of the last change
	synced   map[string][]nft.Port // for each owner that changed since the last Sync: its ports in the kernel
	rewrite  bool                  // the next Sync must write the complete table

	flushMu     sync.Mutex
	flushed     uint64    // number of the last change that is in the kernel
	fingerprint nft.Print // the fingerprint after the last complete write
}

// New returns a table. The parameter through is the name of the node's interface that leads to the pods. The table sets route_localnet
// of this interface while a port needs it. The parameter dir is the directory of the table's files. New does not access these files.
func New(ns netns.NS, name, through, dir string) *Table {
	return &Table{
		ns: ns, name: name, podInterface: through, dir: dir,
		ports: map[string][]nft.Port{}, synced: map[string][]nft.Port{}, rewrite: true,
	}
}

// Load reads the files of the owners that still exist, and removes all other files. The caller must call Sync afterwards.
func (t *Table) Load(live func(owner string) bool) error {
	entries, err := os.ReadDir(t.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read host ports: %w", err)
	}
	ports := map[string][]nft.Port{}
	var errs []error
	for _, e := range entries {
		owner, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !live(owner) {
			errs = append(errs, os.Remove(filepath.Join(t.dir, e.Name())))
			continue
		}
		is, err := t.read(owner)
		if err != nil { // the file is incomplete after a power loss, which has also ended the pod
			errs = append(errs, fmt.Errorf("host ports of %s: %w", owner, err))
			continue
		}
		ports[owner] = is
	}
	t.mu.Lock()
	t.ports = ports
	t.markForRewrite()
	t.mu.Unlock()
	return errors.Join(errs...)
}

func (t *Table) read(owner string) ([]nft.Port, error) {
	data, err := os.ReadFile(t.filePath(owner))
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	return Ports(owner, r.Mappings, r.Addresses)
}

func (t *Table) filePath(owner string) string { return filepath.Join(t.dir, owner+".json") }

// SetNetworks sets the pod networks of the node. The caller must call Sync afterwards.
func (t *Table) SetNetworks(networks []netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Equal(t.networks, networks) {
		t.networks = slices.Clone(networks)
		t.markForRewrite()
	}
}

// markForRewrite makes the next Sync write the complete table. The caller holds mu.
func (t *Table) markForRewrite() {
	t.rewrite = true
	t.changed++
}

// setPorts changes the ports of one owner. The caller holds mu.
func (t *Table) setPorts(owner string, ports []nft.Port) {
	if _, noted := t.synced[owner]; !noted {
		t.synced[owner] = t.ports[owner]
	}
	t.ports[owner] = ports
	if len(ports) == 0 {
		delete(t.ports, owner)
	}
	t.changed++
}

// Add opens a pod's ports and closes the previous ports of the owner. It returns an error if another owner has one of the ports.
func (t *Table) Add(owner string, mappings []Mapping, pod []netip.Addr) error {
	ports, err := Ports(owner, mappings, pod)
	if err != nil || len(ports) == 0 {
		return err
	}
	index := indexPorts(ports)
	t.mu.Lock()
	same := slices.Equal(t.ports[owner], ports)
	if err := t.checkConflicts(owner, index); err != nil {
		t.mu.Unlock()
		return err
	}
	if !same {
		t.setPorts(owner, ports)
	}
	t.mu.Unlock()
	if same {
		return t.Sync()
	}
	err = t.write(owner, record{mappings, pod})
	if err == nil {
		err = t.Sync()
	}
	if err != nil {
		return errors.Join(err, t.Remove(owner))
	}
	return ForgetFlows(t.ns, ports)
}

func (t *Table) checkConflicts(owner string, index portIndex) error {
	for other, theirs := range t.ports {
		if other == owner {
			continue
		}
		if err := index.findConflict(theirs); err != nil {
			return err
		}
	}
	return nil
}

// Remove closes the ports of an owner. An owner without ports is not an error.
func (t *Table) Remove(owner string) error {
	if err := os.Remove(t.filePath(owner)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove host ports of %s: %w", owner, err)
	}
	t.mu.Lock()
	ports := t.ports[owner]
	if len(ports) > 0 {
		t.setPorts(owner, nil)
	}
	t.mu.Unlock()
	if err := t.Sync(); err != nil {
		return err
	}
	return ForgetFlows(t.ns, ports)
}

func (t *Table) write(owner string, r record) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(t.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(t.filePath(owner)+".tmp", data, 0o600)
	}
	if err == nil {
		err = os.Rename(t.filePath(owner)+".tmp", t.filePath(owner))
	}
	if err != nil {
		return fmt.Errorf("store host ports of %s: %w", owner, err)
	}
	return nil
}

// Sync writes all changes to the kernel. Concurrent callers share one write. The duration depends on the number of changes, not on the
// number of ports.
func (t *Table) Sync() error {
	t.mu.Lock()
	want := t.changed
	t.mu.Unlock()
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	if t.flushed >= want {
		return nil
	}
	return t.sync()
}

// sync writes the changes that are not in the kernel yet. The caller holds the mutex for writes to the kernel.
func (t *Table) sync() error {
	t.mu.Lock()
	local := t.needsLocalnet()
	t.mu.Unlock()
	if !local {
		if err := SetLocalnet(t.ns, t.podInterface, false); err != nil {
			return err
		}
	}
	number, removed, added, partial := t.compareSynced()
	if !partial || nft.SwapPorts(t.ns, t.name, removed, added) != nil {
		var content nft.Table
		content, number = t.takeContent()
		err := nft.Replace(t.ns, content)
		if err == nil {
			t.fingerprint, err = nft.PrintOf(t.ns, t.name)
		}
		if err != nil {
			t.mu.Lock()
			t.rewrite = true
			t.mu.Unlock()
			return err
		}
	}
	t.flushed = number
	t.mu.Lock()
	local = t.needsLocalnet() && t.changed == number
	t.mu.Unlock()
	if local { // if another change has been made since, the Sync of that change sets route_localnet
		return SetLocalnet(t.ns, t.podInterface, true)
	}
	return nil
}

// compareSynced returns the changes since the last Sync: the ports to remove from the kernel, and the ports to add. The last result is
// false if the complete table must be written instead.
func (t *Table) compareSynced() (number uint64, removed, added []nft.Port, partial bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	partial = !t.rewrite
	for owner, synced := range t.synced {
		removed, added = append(removed, synced...), append(added, t.ports[owner]...)
		if len(t.ports[owner]) > 0 && !t.hasNetworks(t.ports[owner]) {
			partial = false
		}
	}
	clear(t.synced)
	return t.changed, removed, added, partial
}

// hasNetworks reports whether a pod network exists for each family of the ports. A family without a pod network has no table.
func (t *Table) hasNetworks(ports []nft.Port) bool {
	return !slices.ContainsFunc(ports, func(p nft.Port) bool {
		return !slices.ContainsFunc(t.networks, func(n netip.Prefix) bool { return n.Addr().Is4() == p.To.Addr().Is4() })
	})
}

// takeContent returns the complete table and marks all changes as written.
func (t *Table) takeContent() (nft.Table, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rewrite = false
	clear(t.synced)
	return t.wantedTable(), t.changed
}

// wantedTable returns the content that the table must have. The caller holds mu.
func (t *Table) wantedTable() nft.Table {
	content := nft.Table{Name: t.name, Local: slices.Clone(t.networks)}
	for _, n := range t.networks {
		content.Masquerade = append(content.Masquerade, nft.Source{Prefix: n})
	}
	for _, owner := range slices.Sorted(maps.Keys(t.ports)) {
		content.Ports = append(content.Ports, t.ports[owner]...)
	}
	return content
}

// FindDamage reports whether another program has changed the table: a chain, a rule or the elements of a set. The second result reports
// whether another program has changed route_localnet of the interface. FindDamage changes nothing.
func (t *Table) FindDamage() (table, localnet bool, err error) {
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	return t.findDamage()
}

func (t *Table) findDamage() (table, local bool, err error) {
	t.mu.Lock()
	content, changing := t.wantedTable(), t.changed != t.flushed
	want := localnetSysctl(t.podInterface, t.needsLocalnet())
	t.mu.Unlock()
	if changing { // no fault: a pending Sync writes the missing parts, and another check follows
		return false, false, nil
	}
	current, err := nft.PrintOf(t.ns, t.name)
	if err != nil {
		return false, false, err
	}
	if current != t.fingerprint {
		return true, false, nil
	}
	stored, err := nft.Load(t.ns, t.name)
	if err != nil {
		return false, false, err
	}
	if !nft.EqualElements(stored, content) {
		return true, false, nil
	}
	differing, err := t.ns.DifferingSysctls(want)
	return false, len(differing) > 0, err
}

// Repair restores the parts that FindDamage reports. It deletes the UDP flows that began while the ports were missing, because their
// packets do not reach the pod.
func (t *Table) Repair() error {
	if err := t.Sync(); err != nil {
		return err
	}
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	table, local, err := t.findDamage()
	if err != nil || !table && !local {
		return err
	}
	var ports []nft.Port
	t.mu.Lock()
	if table {
		t.markForRewrite()
	} else {
		t.changed++ // only route_localnet has changed
	}
	for _, p := range t.ports {
		ports = append(ports, p...)
	}
	t.mu.Unlock()
	if err := t.sync(); err != nil || !table {
		return err
	}
	return ForgetFlows(t.ns, ports)
}

// DisableLocalnet clears route_localnet of the interface while the table is damaged, because the rule of the chain guard may be missing.
// The next Sync writes the complete table and sets route_localnet again.
func (t *Table) DisableLocalnet() error {
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	t.mu.Lock()
	t.rewrite = true
	t.mu.Unlock()
	return SetLocalnet(t.ns, t.podInterface, false)
}

// Clean removes the tables and all host ports. It is called when the node is decommissioned or uses another pod network.
func (t *Table) Clean() error {
	err := t.Load(func(string) bool { return false })
	t.SetNetworks(nil)
	return errors.Join(err, t.Sync())
}
