package csi

import "time"

// callTime is the maximum time of one call to a driver, as in a kubelet.
const callTime = 2 * time.Minute
