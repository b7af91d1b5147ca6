package migrate

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// podmanVolumes is the directory of podman's volumes.
const podmanVolumes = "/var/lib/containers/storage/volumes"

const claimsDir = "/var/lib/islet/claims/default"

// claims adds the volumes of podman. Each volume that has a name becomes a claim, with the steps that copy its data. A manifest that uses
// the claim waits until the claim exists.
func (p *planner) claims(volumes []string) {
	there, back := "translate> copy the data of the volumes\n\tmkdir -p "+claimsDir, ""
	var file strings.Builder
	for i, name := range volumes {
		data, claim := path.Join(podmanVolumes, name, "_data"), claimName(name)
		if claim == "" || i >= maxKeys {
			p.keep(data, "", "the data of a volume without a name: mount it as a hostPath")
			continue
		}
		if claim != name {
			p.differ(data, "", "write "+claim+" instead of "+name+" into the manifest: the name of a claim has no capitals and no _")
		}
		p.keep(data, "", "the data of a volume, for the claim "+claim+"; or mount it as a hostPath")
		there += fmt.Sprintf("\n\tcp -aT %s %s/%s", word(data), claimsDir, claim)
		back += fmt.Sprintf("\n\tcp -aT %s/%s %s", claimsDir, claim, word(data))
		if !slices.Contains(p.claimed, claim) {
			fmt.Fprintf(&file, claimYAML, claim)
		}
	}
	if file.Len() > 0 {
		p.addFile("manifests/claims.yaml", file.String(), podmanVolumes)
	}
	if back != "" {
		p.addSteps(there + thereNote + back + backNote)
	}
}

const (
	claimYAML = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %q}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}} # the size has an effect only with project quotas
`
	thereNote = `
(leave out volumes that no manifest uses. islet writes to the copy: the data of podman stays as it is at this moment
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
