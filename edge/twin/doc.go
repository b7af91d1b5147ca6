// Package twin detects another machine that uses the name of this node: a clone of the SD card, a second machine with the same host name,
// or the board that this machine has replaced.
//
//	marks of the hardware, boot ID --hashed-----> Twin <--record--> store
//	link   --CheckOwner, after each good probe--> | |--HoldReason--> status, doctor
//	lease  --Annotations, EvaluateLease---------> | |--Prepare--> pods with shared volumes wait
//	islet takeover --TakeOver-------------------> | '--Conditions, Changed--> Node, event, link
//
// # What is compared
//
// The record in the store identifies the hardware that last had the name. It contains hashes of the serial numbers and of the permanent
// network addresses. The record is on the SD card, so a clone has the record of its original. The clone detects before its first request
// that it runs on other hardware. If both machines have serial numbers, the serial numbers are compared. Otherwise the network addresses
// are compared. Machines that have neither cannot be distinguished in this way.
//
// The Lease has the annotation islet.dev/claim: "HARDWARE.BOOT.TERM.SINCE". This text is the claim of a machine. A renewal writes only the
// renewTime, and its answer contains the annotations. Another machine's claim is therefore detected at the next renewal, without an
// additional request. There is another machine if this boot has written its claim, and the Lease later contains the claim of another boot.
// A reboot of this machine cannot cause that.
//
// # Which machine stays
//
//	hardware    no record    the Lease has            this machine
//	as before   .            another boot's claim     claims
//	another     .            .                        backs off
//	.           yes          no foreign claim         claims
//	.           yes          a foreign claim          claims if the Lease is not renewed, else backs off
//	.           restored     the same hardware        claims with a higher term, also if there is no Lease
//	.           restored     another or no claim      claims with a higher term if the Lease is not renewed, else waits
//	claimed     .            a later claim            writes its own again: it stays
//	claimed     .            an earlier one, twice    backs off
//	.           .            one of a higher term     backs off
//
// The claim with the higher term wins. If the terms are equal, the claim with the lower version of the Lease wins. Clocks are not compared.
// Each machine measures durations itself. A Lease counts as renewed if its renewTime has changed, even to an earlier time. A machine does
// not back off for an earlier claim before that claim has appeared twice. A single appearance may come from a restored backup, which
// contains the claim of an earlier boot of this machine.
//
// # Backing off
//
// The link of a machine that backs off is Down with the reason DuplicateNode. The machine then sends only two small requests, at growing
// intervals: it reads the Lease, and sets the annotation islet.dev/twin of the Lease. The machine that stays finds this annotation at its
// next renewal, removes it, and reports an event and the condition DuplicateNode. The decision is part of the record, so it survives a
// reboot. A machine that has backed off does not start new pods that mount a writable shared volume, because the other machine may run
// the same pods. Running containers and static pods are not affected.
//
// TakeOver raises the term. Use it in three cases: this board replaces another one; the network card of a machine without a serial number
// was exchanged; the other machine no longer exists. The last reads of the Lease may be half an hour old, and then prove nothing. So
// TakeOver lets CheckOwner read the Lease twice, as after the start, and waits for the result.
//
// # Backups
//
// A restored store has the record of Restored. A Lease whose claim says nothing, or that this node may not read, then proves nothing,
// because a machine that used the name certainly exists. The machine waits until the machine before it has stopped renewing the Lease, and
// then claims the name with a higher term. So a machine that was backed up and comes back later backs off at its first renewal.
//
// # Attacks
//
// A pod cannot change Leases, and the files of pods are not read. A hostile API server can show a claim that makes this machine back off.
// Then pods with shared volumes do not start on this machine. The server can prevent their start anyway, because it decides which pods run
// here. Running containers continue and are restarted when they fail, and static pods start. Claims and notices have a maximum length, and
// are validated before they are shown.
package twin
