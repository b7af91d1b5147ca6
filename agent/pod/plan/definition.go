package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Hash tells definitions of a container apart, by its name and image: nothing
// else of it can change while its pod lives. The value is a kubelet's, so what
// one has started goes on under the other.
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

// SpecHash tells the specs of a pod apart, whatever the order in which its maps were
// written. It is for this node only: another islet may give another value.
func SpecHash(spec *v1.PodSpec) string {
	b, err := spec.Marshal() // its maps are sorted
	if err != nil {
		return "" // not known
	}
	h := fnv.New64a()
	h.Write(b)
	return strconv.FormatUint(h.Sum64(), 36)
}

// Changed reports whether a container was made from another definition than the
// wanted one. One without a hash is older than hashes; and a hash of another make,
// by an older agent or kubelet, says nothing while the image is the wanted one.
func Changed(ctr *v1.Container, c Container) bool {
	return c.Hash != "" && c.Hash != Hash(ctr) && c.Image != ctr.Image
}
