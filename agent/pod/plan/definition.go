package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Hash returns the hash of a container's definition: of its name and image, since nothing else can change while its pod
// exists. The value is a kubelet's, so containers go on when a node changes between islet and a kubelet.
func Hash(ctr *v1.Container) string {
	text, err := json.Marshal(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{ctr.Image, ctr.Name})
	if err != nil {
		panic(err) // two strings
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "([]uint8)%v", text)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// SpecHash returns the hash of a pod's spec. The order of its maps does not matter. Another version of islet may return
// another value.
func SpecHash(spec *v1.PodSpec) string {
	b, err := spec.Marshal() // its maps are sorted
	if err != nil {
		return "" // not known
	}
	h := fnv.New64a()
	h.Write(b)
	return strconv.FormatUint(h.Sum64(), 36)
}

// Changed reports whether a container was created from another definition than the wanted one. It returns false for a
// container without a hash, and for one with the wanted image: an older agent or kubelet may have computed another hash.
func Changed(ctr *v1.Container, c Container) bool {
	return c.Hash != "" && c.Hash != Hash(ctr) && c.Image != ctr.Image
}
