package probe

// A queue is a heap of checks, ordered by the time of the next call.
type queue []*check

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	c := x.(*check)
	c.index = len(*q)
	*q = append(*q, c)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q, c.index = (*q)[:last], -1
	return c
}
