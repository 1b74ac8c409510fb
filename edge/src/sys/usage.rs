//! The memory and the CPU time of this process and its threads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use super::memory;

/// Number of milliseconds in a second.
const MS: u64 = 1000;
/// Most bytes that the kernel writes about the memory of a process.
const STATM_MAX: usize = 256;

/// The file with the memory of this process, which a sandbox would not permit to open.
static STATM: OnceLock<Option<File>> = OnceLock::new();

/// Memory that this process can use, read before a sandbox forbids it.
static MEMORY_LIMIT: OnceLock<Option<u64>> = OnceLock::new();

/// Opens the file from which `resident_bytes` reads, and reads `memory_limit`. Called before the sandbox starts.
pub fn prepare() {
    STATM.get_or_init(|| File::open("/proc/self/statm").ok());
    MEMORY_LIMIT.get_or_init(memory::available);
}

/// Returns the memory in bytes that this process can use at most, as it was when this function was first called.
pub fn memory_limit() -> Option<u64> {
    *MEMORY_LIMIT.get_or_init(memory::available)
}

/// Returns the resident memory of this process in bytes. `None` if `/proc` can't be read.
pub fn resident_bytes() -> Option<u64> {
    prepare();
    let mut text = [0; STATM_MAX];
    let length = STATM.get()?.as_ref()?.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size()?)
}

/// Returns the size of a page of memory in bytes. `rustix::param` is not used, since its function crashes under valgrind,
/// with which we count instructions.
fn page_size() -> Option<u64> {
    // SAFETY: `sysconf` only returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).ok()
}

/// Returns the CPU time of all threads of this process so far, in milliseconds.
pub fn process_cpu_ms() -> u64 {
    read_clock(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// The clock of the CPU time of one thread, which any thread may read.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCpu(Option<libc::clockid_t>);

impl ThreadCpu {
    /// Returns the clock of the calling thread.
    pub fn of_this_thread() -> ThreadCpu {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: `pthread_self` is always valid in its own thread, and `clock` is writable.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        ThreadCpu((failed == 0).then_some(clock))
    }

    /// Returns the CPU time of the thread so far, in milliseconds. `None` if the thread has ended.
    pub fn read_ms(self) -> Option<u64> {
        read_clock(self.0?)
    }
}

fn read_clock(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable. The kernel refuses clocks of threads that have ended.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) };
    if failed != 0 {
        return None;
    }
    let (seconds, nanoseconds) = (
        u64::try_from(time.tv_sec).ok()?,
        time.tv_nsec.cast_unsigned(),
    );
    Some(seconds * MS + nanoseconds / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_thread_is_read_by_another_one() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            let cpu = ThreadCpu::of_this_thread();
            while cpu.read_ms() < Some(5) {
                std::hint::spin_loop();
            }
            send.send(cpu).expect("a receiver");
            let _ = ended.recv();
        });
        let cpu = receive.recv().expect("the clock");
        let used_ms = cpu.read_ms().expect("a thread that runs");
        assert!((5..=process_cpu_ms()).contains(&used_ms), "{used_ms}");
        drop(end);
        worker.join().expect("no panic");
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
