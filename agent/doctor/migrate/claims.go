package migrate

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// podmanVolumes is the directory of podman's volumes.
const podmanVolumes = "/var/lib/containers/storage/volumes"

// claims adds the volumes of podman. Each volume that has a name becomes a claim, with the steps that copy its data. A manifest that uses
// the claim waits until the claim exists.
func (p *planner) claims(volumes []string) {
	const dir = "/var/lib/islet/claims/default"
	there, back := []string{"mkdir -p " + dir}, []string{}
	var file strings.Builder
	for i, name := range volumes {
		data, claim := path.Join(podmanVolumes, name, "_data"), claimName(name)
		switch {
		case claim == "" || i >= maxKeys:
			p.keep(data, "", "the data of a volume without a name: mount it as a hostPath, or copy it to "+dir+"/NAME, for the claim NAME")
			continue
		case claim != name:
			p.differ(data, "", "write "+claim+" instead of "+name+" into the manifest: the name of a claim has no capitals and no _")
		}
		p.keep(data, "", "the data of a volume, for the claim "+claim+"; or mount it as a hostPath")
		there = append(there, "cp -aT "+word(data)+" "+dir+"/"+claim)
		back = append(back, "cp -aT "+dir+"/"+claim+" "+word(data))
		if !slices.Contains(p.claimed, claim) {
			file.WriteString("---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + strconv.Quote(claim) +
				"}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}}\n")
		}
	}
	if file.Len() > 0 {
		p.addFile("manifests/claims.yaml", "# The claims of podman's volumes. The size has an effect only with project quotas.\n"+file.String(),
			podmanVolumes)
	}
	if len(back) > 0 {
		p.addStep("translate>", Step{"copy the data of the volumes", there, "leave out volumes that no manifest uses. The copy is what islet " +
			"writes to: the data of podman stays as it is at this moment"})
		p.addStep("translate<", Step{"copy the data back that pods have written to claims since then", back, "files that pods have deleted " +
			"since then are still there"})
	}
}

// claimName returns the name of the claim for a volume, or "" if the volume has no name that a person has chosen.
func claimName(volume string) string {
	name := strings.ReplaceAll(strings.ToLower(volume), "_", "-")
	if len(volume) == 64 && strings.Trim(volume, "0123456789abcdef") == "" || strings.Trim(name, "-.") != name || strings.Contains(name, "..") ||
		strings.ContainsFunc(name, func(c rune) bool { return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.') }) {
		return ""
	}
	return name
}
