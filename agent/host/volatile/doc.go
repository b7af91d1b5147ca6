// Package volatile lets the agent start where a disk takes no writes (EROFS: a card that
// the kernel has set read-only, a machine that booted so): a layer in memory is laid over
// each directory of the agent's that is on such a disk. All paths stay what they are, so
// that nobody else knows of it.
//
//	RUN/volatile            a tmpfs, bounded
//	  <dir>/disk            the directory as the disk has it
//	  <dir>/upper, work     of the overlay that is mounted over the directory
//	  <dir>/apart/<n>       of the tmpfs, mounted over directories in the overlay
//
// Apart are directories that hold uppers and layers of further overlays, which no overlay
// may carry: an overlay is no upper of another, and does not show the whiteouts of layers.
// Their small files are copied, their subdirectories of the second level are links to the
// disk.
//
// A pod can fill the layer, but not the memory: then its writes fail, and those of other
// pods and the agent, as on a full disk; and what a pod writes counts as its memory. What
// is written is lost at the next boot: the node is then as it was when the disk failed. A
// file that is changed is copied into memory whole. The layer stays until the machine
// boots or Uncover is called, also when the disk has recovered: what is on the disk by
// then is older than what runs.
package volatile
