package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Hash returns the hash of a container's name and image. Nothing else in a container's definition can change while
// its pod exists. The value is the same as a kubelet's, so containers keep running when a node changes between islet
// and a kubelet.
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

// SpecHash returns the hash of a pod's spec. It does not depend on the order of map entries. Other versions of islet
// may return a different value. It returns "" if the spec cannot be encoded.
func SpecHash(spec *v1.PodSpec) string {
	b, err := spec.Marshal() // Marshal sorts maps
	if err != nil {
		return "" // not known
	}
	h := fnv.New64a()
	h.Write(b)
	return strconv.FormatUint(h.Sum64(), 36)
}

// DefinitionChanged reports whether a container was created from another definition than the wanted one. It
// returns false for a container without a hash. It also returns false if the container has the wanted image,
// because an older agent or kubelet may have computed the hash differently.
func DefinitionChanged(ctr *v1.Container, c Container) bool {
	return c.Hash != "" && c.Hash != Hash(ctr) && c.Image != ctr.Image
}
