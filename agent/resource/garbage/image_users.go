package garbage

import (
	"context"
	"slices"
	"strings"
)

// ImageUser describes a pod or container that needs the image with the given ID. It returns "" if nothing needs the
// image.
func (g *Garbage) ImageUser(ctx context.Context, id string) (string, error) {
	_, needs, err := g.inspect(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range index(needs)[id] {
		return n.Name, nil
	}
	return "", nil
}

// ImageUsers returns the users of each image by its ID, sorted: pods as namespace/name, and other users as a description,
// such as a container of a pod that is no longer stored.
func (g *Garbage) ImageUsers(ctx context.Context) (map[string][]string, error) {
	images, needs, err := g.inspect(ctx)
	if err != nil {
		return nil, err
	}
	needed := index(needs)
	out := map[string][]string{}
	for _, i := range images {
		var users []string
		for name := range i.eachName() {
			for _, n := range needed[name] {
				users = append(users, strings.TrimPrefix(n.Name, "pod "))
			}
		}
		slices.Sort(users)
		users = slices.Compact(users)
		out[i.ID] = slices.DeleteFunc(users, func(u string) bool { // the container of a pod in the list
			_, pod, found := strings.Cut(u, " of pod ")
			return found && slices.Contains(users, pod)
		})
	}
	return out, nil
}
