package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
)

const (
	claimsParent = "/var/lib/islet/claims"
	claimsDir    = claimsParent + "/default"
	// newClaim is the directory into which the data of a user is extracted: it is always new, because tar follows links that a directory
	// has before.
	newClaim = claimsParent + "/.new"
)

// A volume is a volume of podman. The user is empty for a volume of root.
type volume struct{ user, name, data string }

// A podmanEngine is the table engine of a containers.conf.
type podmanEngine struct {
	Env        []string `toml:"env"`
	VolumePath string   `toml:"volume_path"`
}

// podmanEngine reads a containers.conf.
func (p *planner) podmanEngine(file string) podmanEngine {
	var c struct {
		Engine podmanEngine `toml:"engine"`
	}
	p.decodeTOML(file, &c)
	return c.Engine
}

// podmanVolumes finds the volumes of root or of a user, in the directory that the storage.conf and containers.conf name. The user in
// the home of root is empty.
func (p *planner) podmanVolumes(h home, s *podmanState) {
	var system, own struct {
		Storage struct {
			GraphRoot string `toml:"graphroot"`
			Rootless  string `toml:"rootless_storage_path"`
		} `toml:"storage"`
	}
	p.decodeTOML("/etc/containers/storage.conf", &system)
	root := cmp.Or(system.Storage.GraphRoot, "/var/lib/containers/storage")
	conf := "/etc/containers"
	if h.user != "" {
		conf = path.Join(h.dir, ".config/containers")
		p.decodeTOML(conf+"/storage.conf", &own)
		root = cmp.Or(own.Storage.GraphRoot, system.Storage.Rootless, "$HOME/.local/share/containers/storage")
	}
	dir := cmp.Or(p.podmanEngine(conf+"/containers.conf").VolumePath, root+"/volumes")
	dir = strings.NewReplacer("$HOME", h.dir, "$USER", h.user).Replace(dir)
	for _, name := range p.host.list(dir) {
		if data := path.Join("/", dir, name, "_data"); p.host.exists(data) {
			s.volumes = append(s.volumes, volume{h.user, name, data})
		}
	}
}

// claims adds the volumes of podman. Each volume that has a name becomes a claim, with the steps that copy its data. A manifest that uses
// the claim waits until the claim exists. podman copies the data of a user without root, because only podman knows which owners the files
// have in a container. Most versions of podman open /dev/stdout, so podman needs a pipe of its own user. The user may have written anything
// into this archive, such as programs with setuid, so only root can enter the directory of the claims. No copy writes through a link that
// the target has. The claims of a user are beside the manifests of this user, which must be reviewed.
func (p *planner) claims(volumes []volume) {
	there, back := "translate> copy the data of the volumes\n\tinstall -d -m 700 "+claimsParent+" "+claimsDir, ""
	var names, dirs []string
	files := map[string]string{}
	for i, v := range volumes {
		claim := claimName(v.name)
		if claim == "" || i >= maxKeys || strings.ContainsFunc(v.data, unicode.IsControl) { // a line break would begin another step
			p.keep(v.data, "", "the data of a volume without a name: mount it as a hostPath")
			continue
		}
		if slices.Contains(names, claim) {
			base := cmp.Or(claimName(strings.TrimPrefix(v.user+"-"+v.name, "-")), claim)
			claim = base
			for n := 2; slices.Contains(names, claim); n++ {
				claim = fmt.Sprintf("%s-%d", base, n)
			}
		}
		names = add(names, claim)
		if claim != v.name {
			p.differ(v.data, "", "write "+claim+" instead of "+v.name+" into the manifest: the name of a claim has no capitals and no _, "+
				"and no other claim has it")
		}
		p.keep(v.data, "", "the data of a volume, for the claim "+claim+"; or mount it as a hostPath")
		target, dir := claimsDir+"/"+claim, "manifests"
		if v.user == "" {
			there += copyData + word(v.data) + " " + target
			back += copyData + target + " " + word(v.data)
		} else {
			dir = "users/" + v.user
			there += "\n\t[ -e " + target + " ] || { rm -rf " + newClaim + " && mkdir " + newClaim + " && " + runAs(v.user) + "sh -c " +
				word("podman volume export "+v.name+" | cat") + " | tar -xpf - --numeric-owner -C " + newClaim +
				" && mv -T " + newClaim + " " + target + "; }"
			back += "\n\ttar -cf - --numeric-owner -C " + target + " . | " + runAs(v.user) + "podman volume import " + word(v.name) + " -"
		}
		if !slices.Contains(p.claimed, claim) {
			files[dir] += fmt.Sprintf(claimYAML, claim)
		}
		if !slices.Contains(dirs, path.Dir(path.Dir(v.data))) {
			dirs = add(dirs, path.Dir(path.Dir(v.data)))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		p.addFile(dir+"/claims.yaml", files[dir], dirs...)
	}
	if back != "" {
		p.addSteps(there + thereNote + back + backNote)
	}
}

const (
	copyData  = "\n\tcp -aT --remove-destination "
	claimYAML = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %q}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}} # the size has an effect only with project quotas
`
	thereNote = `
(leave out volumes that no manifest uses. islet writes to the copy: the data of podman stays as it is at this moment. A copy ` +
		`of a user's volume that exists stays
translate< copy the data back that pods have written to claims since then`
	backNote = `
(files that pods have deleted since then are still there`
)

// claimName returns the name of the claim for a volume, or "" if the volume has no name that a person has chosen.
func claimName(volume string) string {
	name := strings.ReplaceAll(strings.ToLower(volume), "_", "-")
	const hex = "0123456789abcdef"
	if len(volume) == 64 && strings.Trim(volume, hex) == "" || strings.Trim(name, "-.") != name ||
		strings.Trim(name, hex+"ghijklmnopqrstuvwxyz-.") != "" || strings.Contains(name, "..") {
		return ""
	}
	return name
}
