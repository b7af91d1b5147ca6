package probe

// A verdict is the state of a check. It changes when enough consecutive calls have the same
// result, see threshold.
type verdict uint8

const (
	noVerdict verdict = iota // nothing yet
	passedVerdict
	failedVerdict
)

// threshold returns how many consecutive results v are needed to change the verdict to v.
func (c *check) threshold(v verdict) int32 {
	if v == failedVerdict {
		return c.probeSpec().FailureThreshold
	}
	return c.probeSpec().SuccessThreshold
}

// countResult counts a result and returns the new verdict.
func (c *check) countResult(v verdict) verdict {
	if c.lastResult != v {
		c.lastResult, c.inRow = v, 0
	}
	c.inRow++
	if c.inRow < c.threshold(v) {
		return c.verdict
	}
	return v
}
