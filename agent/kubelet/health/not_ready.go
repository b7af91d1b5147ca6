package health

import "context"

// NotReady returns the reasons why pods cannot run on this node, in a kubelet's words.
func (h Health) NotReady(ctx context.Context) (why []string) {
	for _, c := range h.Checks() {
		if err := c.Check(ctx); err != nil {
			why = append(why, err.Error())
		}
	}
	if err := h.c.Network(); err != nil {
		why = append(why, err.Error())
	}
	if off := h.c.StartsBlocked(); off != "" {
		why = append(why, off)
	}
	return why
}
