//! What the probe reads from recorded machines, and from this one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_types, reason = "a clock of a test keeps a list")]

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::system::{ManualProbe, Memory, Probe, SystemProbe};
use tower_sentinel::{Clock, ManualClock};

/// A copy of a recorded machine on which time goes on.
struct Machine {
    root: PathBuf,
    clock: ManualClock,
}

impl Machine {
    /// The machine recorded under `fixture`, for the test `test`.
    fn new(fixture: &str, test: &str) -> Self {
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/system")
            .join(fixture);
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("system-{fixture}-{test}-{}", std::process::id()));
        copy(&recorded, &root);
        Self {
            root,
            clock: ManualClock::new(),
        }
    }

    fn probe(&self) -> SystemProbe {
        SystemProbe::with(&self.root, self.clock.clone())
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root.join(file)).unwrap()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.root.join(file), text).unwrap();
    }

    fn make(&self, folder: &str) {
        fs::create_dir_all(self.root.join(folder)).unwrap();
    }

    fn remove(&self, file: &str) {
        fs::remove_file(self.root.join(file)).unwrap();
    }

    /// Time goes on, in which the process uses `own_ticks` of 10 ms, and all
    /// cores together are busy and idle for so many.
    fn run(&self, time: Duration, own_ticks: u64, host_ticks: [u64; 2]) {
        self.clock.advance(time);
        self.add("proc/self/stat", ") S ", &[(10, own_ticks)]);
        self.add(
            "proc/stat",
            "cpu  ",
            &[(0, host_ticks[0]), (3, host_ticks[1])],
        );
    }

    /// Adds to fields of the line of `file` that goes on after `start`.
    fn add(&self, file: &str, start: &str, additions: &[(usize, u64)]) {
        let text = self.read(file);
        let (before, after) = text.split_once(start).unwrap();
        let (line, rest) = after.split_once('\n').unwrap();
        let mut fields: Vec<_> = line.split(' ').map(str::to_owned).collect();
        for &(field, more) in additions {
            let value: u64 = fields[field].parse().unwrap();
            fields[field] = (value + more).to_string();
        }
        self.write(
            file,
            &format!("{before}{start}{}\n{rest}", fields.join(" ")),
        );
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // What is left is in a folder for such things.
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            // Not `fs::copy`: a recorded file may be read-only.
            fs::write(target, fs::read(&path).unwrap()).unwrap();
        }
    }
}

const TEN_SECONDS: Duration = Duration::from_secs(10);

#[track_caller]
fn assert_share(probe: &SystemProbe, expected: f64) {
    let cpu = probe.cpu().expect("a share");
    assert!((cpu - expected).abs() < 1e-9, "{cpu} is not {expected}");
}

#[test]
fn the_load_is_the_average_of_a_minute() {
    for (fixture, load) in [("cgroup_v1", 3.41), ("cgroup_v2", 0.52), ("no_quota", 1.08)] {
        let machine = Machine::new(fixture, "load");
        assert_eq!(machine.probe().load(), Some(load), "{fixture}");
    }
}

#[test]
fn a_share_of_a_quota_of_version_1() {
    let machine = Machine::new("cgroup_v1", "share");
    let probe = machine.probe();
    // 9 s of CPU time in 10 s, of 1.5 cores; the machine is full.
    machine.run(TEN_SECONDS, 900, [4_000, 0]);
    assert_share(&probe, 0.6);
}

#[test]
fn a_share_of_the_tightest_quota_of_nested_groups_of_version_2() {
    let machine = Machine::new("cgroup_v2", "share");
    let probe = machine.probe();
    // The service has 6 cores, the slice around it 2, the one around that all.
    machine.run(TEN_SECONDS, 500, [7_200, 800]);
    assert_share(&probe, 0.25);
}

#[test]
fn a_group_of_version_1_is_that_of_its_controller() {
    let machine = Machine::new("cgroup_v1", "own-group");
    // All groups are to be seen, and memory has another one.
    let mounts = machine.read("proc/self/mountinfo");
    machine.write(
        "proc/self/mountinfo",
        &mounts.replace("/docker/5f0e21aa", "/"),
    );
    machine.write("proc/self/cgroup", "11:memory:/other\n4:cpu:/shop\n");
    let top = "sys/fs/cgroup/cpu,cpuacct";
    machine.make(&format!("{top}/shop"));
    for file in ["cpu.cfs_quota_us", "cpu.cfs_period_us"] {
        let text = machine.read(&format!("{top}/{file}"));
        machine.remove(&format!("{top}/{file}"));
        machine.write(&format!("{top}/shop/{file}"), &text);
    }
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 900, [4_000, 0]);
    assert_share(&probe, 0.6);
}

#[test]
fn of_two_mounts_the_one_that_shows_the_group_is_read() {
    let machine = Machine::new("cgroup_v2", "mounts");
    let mounts = machine.read("proc/self/mountinfo");
    let other = "29 24 0:26 /other /mnt/other rw - cgroup2 cgroup2 rw";
    machine.write("proc/self/mountinfo", &format!("{other}\n{mounts}"));
    machine.make("mnt/other");
    machine.write("mnt/other/cpu.max", "10000 100000\n");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 500, [7_200, 800]);
    assert_share(&probe, 0.25);
}

#[test]
fn of_two_mounts_that_show_the_group_the_one_that_shows_more_is_read() {
    let machine = Machine::new("cgroup_v2", "both");
    let mounts = machine.read("proc/self/mountinfo");
    let group = "/system.slice/shop.slice/orders.service";
    let other = format!("29 24 0:26 {group} /mnt/own rw - cgroup2 cgroup2 rw");
    machine.make("mnt/own");
    machine.write("mnt/own/cpu.max", "600000 100000\n");
    for mounts in [format!("{other}\n{mounts}"), format!("{mounts}{other}\n")] {
        machine.write("proc/self/mountinfo", &mounts);
        let probe = machine.probe();
        machine.run(TEN_SECONDS, 500, [7_200, 800]);
        // That of a group above its own, which only one of them shows.
        assert_share(&probe, 0.25);
    }
}

#[test]
fn a_mount_that_is_seen_below_the_root_already_is_read_there() {
    let machine = Machine::new("cgroup_v2", "host");
    // As in a container: its own group, and where it sees those of its host.
    let group = "/system.slice/shop.slice/orders.service";
    let own = format!("40 24 0:26 {group} /sys/fs/cgroup ro - cgroup2 cgroup2 rw");
    let root = machine.root.display();
    let host = format!("41 24 0:26 / {root}/sys/fs/cgroup ro - cgroup2 cgroup2 rw");
    machine.write("proc/self/mountinfo", &format!("{own}\n{host}\n"));
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 500, [7_200, 800]);
    assert_share(&probe, 0.25);
}

#[test]
fn without_a_quota_the_larger_share_counts() {
    let machine = Machine::new("no_quota", "share");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 1_000, [2_200, 1_800]);
    assert_share(&probe, 0.55);

    // Bound to one of the four cores.
    let machine = Machine::new("no_quota", "bound");
    machine.write("proc/self/status", "Cpus_allowed_list:\t2\n");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 900, [1_200, 2_800]);
    assert_share(&probe, 0.9);
}

#[test]
fn a_quota_above_the_cores_does_not_bind() {
    let machine = Machine::new("no_quota", "wide");
    machine.write("sys/fs/cgroup/cpu.max", "800000 100000\n");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 1_000, [2_200, 1_800]);
    assert_share(&probe, 0.55);
}

#[test]
fn a_quota_above_the_cores_that_are_there_does_not_bind() {
    let machine = Machine::new("no_quota", "online");
    // Four cores of a machine that may get up to 128.
    machine.write("proc/self/status", "Cpus_allowed_list:\t0-127\n");
    machine.make("sys/devices/system/cpu");
    machine.write("sys/devices/system/cpu/online", "0-3\n");
    machine.write("sys/fs/cgroup/cpu.max", "800000 100000\n");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 4_000, [4_000, 0]);
    assert_share(&probe, 1.0);
}

#[test]
fn names_of_groups_and_mounts_are_read_as_the_kernel_writes_them() {
    let one_core = "100000 100000\n";
    // A backslash in the name of the group that the mount shows, as systemd writes a hyphen.
    let machine = Machine::new("no_quota", "backslash");
    machine.write("proc/self/cgroup", "0::/machine-a\\x2db.scope/payload\n");
    let mount = "31 24 0:27 /machine-a\\134x2db.scope /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    machine.write("proc/self/mountinfo", mount);
    machine.make("sys/fs/cgroup/payload");
    machine.write("sys/fs/cgroup/payload/cpu.max", one_core);
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 900, [900, 3_100]);
    assert_share(&probe, 0.9);

    // A space in the place of the mount.
    let machine = Machine::new("no_quota", "space");
    machine.write("proc/self/cgroup", "0::/\n");
    let mount = "31 24 0:27 / /mnt/control\\040groups rw - cgroup2 cgroup2 rw\n";
    machine.write("proc/self/mountinfo", mount);
    machine.make("mnt/control groups");
    machine.write("mnt/control groups/cpu.max", one_core);
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 900, [900, 3_100]);
    assert_share(&probe, 0.9);
}

#[test]
fn names_that_are_no_text_hide_nothing() {
    let machine = Machine::new("no_quota", "bytes");
    machine.write("proc/self/cgroup", "0::/\n");
    machine.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
    let mounts = b"30 24 0:9 / /mnt/caf\xe9 rw - ext4 /dev/sda rw\n\
        31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    fs::write(machine.root.join("proc/self/mountinfo"), mounts).unwrap();
    let status = machine.read("proc/self/status");
    // The kernel cuts the name of a program after 15 bytes, here in the middle of a letter.
    let name = &"\u{e4}".repeat(8).into_bytes()[..15];
    let status = [b"Name:\t", name, b"\n", status.as_bytes()].concat();
    fs::write(machine.root.join("proc/self/status"), status).unwrap();
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 900, [900, 3_100]);
    let stat = machine.read("proc/self/stat");
    let (before, after) = stat.split_once('(').unwrap();
    let (_, after) = after.split_once(')').unwrap();
    let stat = [before.as_bytes(), b"(", name, b")", after.as_bytes()].concat();
    fs::write(machine.root.join("proc/self/stat"), stat).unwrap();
    assert_share(&probe, 0.9);
    assert!(probe.memory().is_some());
}

#[test]
fn a_quota_beyond_32_bits_is_one() {
    let machine = Machine::new("no_quota", "huge");
    machine.write("sys/fs/cgroup/cpu.max", "4294967296 100000\n");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 1_000, [2_200, 1_800]);
    assert_share(&probe, 0.55);
}

#[test]
fn a_changed_quota_is_seen() {
    let machine = Machine::new("no_quota", "resized");
    let probe = machine.probe();
    machine.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
    machine.run(TEN_SECONDS, 250, [4_000, 0]);
    assert_share(&probe, 0.5);
}

#[test]
fn more_than_the_quota_is_all_of_it() {
    let machine = Machine::new("cgroup_v1", "burst");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 1_600, [4_000, 0]);
    assert_share(&probe, 1.0);
}

#[test]
fn a_share_is_smoothed_over_two_seconds() {
    let machine = Machine::new("cgroup_v1", "smooth");
    let probe = machine.probe();
    let second = Duration::from_secs(1);
    machine.run(second, 0, [0, 400]);
    assert_share(&probe, 0.0);
    // From idle to the whole quota: 1 - e^(-t / 2 s).
    for t in 1..=5 {
        machine.run(second, 150, [400, 0]);
        assert_share(&probe, 1.0 - (-f64::from(t) / 2.0).exp());
    }
}

#[test]
fn readings_too_close_together_change_nothing() {
    let machine = Machine::new("cgroup_v1", "close");
    let probe = machine.probe();
    assert_eq!(probe.cpu(), None);
    machine.run(Duration::from_millis(99), 1, [40, 0]);
    assert_eq!(probe.cpu(), None);
    machine.run(TEN_SECONDS - Duration::from_millis(99), 899, [4_000, 0]);
    assert_share(&probe, 0.6);
    machine.run(Duration::from_millis(99), 15, [40, 0]);
    assert_share(&probe, 0.6);
    // 100 ms are enough: all of the quota, since the last reading that counted.
    machine.run(Duration::from_millis(1), 0, [0, 0]);
    assert_share(&probe, 1.0 - 0.4 * (-0.05_f64).exp());
    // At the very same time nothing is measured anew.
    let machine = Machine::new("cgroup_v1", "same-time");
    let probe = machine.probe();
    machine.run(Duration::ZERO, 450, [2_000, 0]);
    assert_eq!(probe.cpu(), None);
    machine.run(TEN_SECONDS, 450, [2_000, 0]);
    assert_share(&probe, 0.6);
}

type Meanwhile = Box<dyn FnOnce() + Send>;

/// A clock one of whose readers sleeps before it uses the reading, or before it reads:
/// something else happens meanwhile.
struct Sleepy {
    clock: ManualClock,
    meanwhile: Arc<Mutex<Vec<Option<Meanwhile>>>>,
    is_before: bool,
}

impl fmt::Debug for Sleepy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clock.fmt(f)
    }
}

impl Clock for Sleepy {
    fn now(&self) -> Tick {
        let now = self.clock.now();
        let next = self.meanwhile.lock().unwrap().pop();
        if let Some(Some(meanwhile)) = next {
            meanwhile();
        }
        if self.is_before {
            self.clock.now()
        } else {
            now
        }
    }
}

#[test]
fn a_share_is_right_though_its_reader_was_put_to_sleep() {
    for (reading, is_before) in (0..4).flat_map(|reading| [(reading, false), (reading, true)]) {
        let name = format!("sleep-{reading}-{is_before}");
        let machine = Arc::new(Machine::new("cgroup_v1", &name));
        let meanwhile = Arc::new(Mutex::new(Vec::new()));
        let clock = Sleepy {
            clock: machine.clock.clone(),
            meanwhile: meanwhile.clone(),
            is_before,
        };
        let probe = SystemProbe::with(&machine.root, clock);
        // 1.5 cores, of which it uses 60 % all the time.
        machine.run(TEN_SECONDS, 900, [4_000, 0]);
        let asleep = machine.clone();
        let sleep: Meanwhile = Box::new(move || asleep.run(TEN_SECONDS, 900, [4_000, 0]));
        let mut readings: Vec<Option<Meanwhile>> = (0..reading).map(|_| None).collect();
        readings.insert(0, Some(sleep));
        *meanwhile.lock().unwrap() = readings;
        assert_share(&probe, 0.6);
        machine.run(TEN_SECONDS, 900, [4_000, 0]);
        assert_share(&probe, 0.6);
    }
}

#[test]
fn after_a_step_back_of_the_clock_a_share_is_measured_anew() {
    let machine = Machine::new("cgroup_v1", "back");
    machine.clock.set(Tick::from_millis(3_600_000));
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 0, [0, 4_000]);
    assert_share(&probe, 0.0);
    machine.clock.set(Tick::ZERO);
    assert_share(&probe, 0.0);
    // Well before the clock is where it was.
    let second = Duration::from_secs(1);
    machine.run(second, 150, [400, 0]);
    assert_share(&probe, 1.0 - (-0.5_f64).exp());
}

#[test]
fn a_clock_that_steps_back_within_a_reading_leaves_the_share_as_it_was() {
    let machine = Machine::new("cgroup_v1", "back-within");
    machine.clock.set(Tick::from_millis(3_600_000));
    let meanwhile = Arc::new(Mutex::new(Vec::new()));
    let clock = Sleepy {
        clock: machine.clock.clone(),
        meanwhile: meanwhile.clone(),
        is_before: false,
    };
    let probe = SystemProbe::with(&machine.root, clock);
    machine.run(TEN_SECONDS, 900, [4_000, 0]);
    assert_share(&probe, 0.6);
    machine.run(TEN_SECONDS, 450, [4_000, 0]);
    // After the look at the time, before the counters are read.
    let clock = machine.clock.clone();
    let back: Meanwhile = Box::new(move || clock.set(Tick::ZERO));
    meanwhile.lock().unwrap().push(Some(back));
    assert_share(&probe, 0.6);
    machine.run(TEN_SECONDS, 900, [4_000, 0]);
    assert_share(&probe, 0.6);
}

#[test]
fn what_is_not_there_is_not_known() {
    let nowhere = SystemProbe::with("/no/such/machine", ManualClock::new());
    assert_eq!((nowhere.load(), nowhere.cpu()), (None, None));

    // file, load is known, cpu is known
    let table = [
        ("proc/loadavg", false, true),
        ("proc/self/stat", true, false),
        // The quota is known, and enough.
        ("proc/stat", true, true),
        ("proc/self/status", true, true),
        // The quota is not known.
        ("proc/self/mountinfo", true, false),
    ];
    for (index, (file, has_load, has_cpu)) in table.into_iter().enumerate() {
        let machine = Machine::new("cgroup_v1", &format!("missing-{index}"));
        let groups = file == "proc/self/mountinfo";
        if groups {
            // They are found once, at the beginning.
            machine.remove(file);
        }
        let probe = machine.probe();
        machine.run(TEN_SECONDS, 900, [2_000, 2_000]);
        if !groups {
            machine.remove(file);
        }
        assert_eq!(probe.load().is_some(), has_load, "{file}");
        assert_eq!(probe.cpu().is_some(), has_cpu, "{file}");
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn memory_is_what_is_resident_of_the_tightest_limit() {
    // fixture, used, limit
    let table = [
        ("cgroup_v1", 96 * MIB, 256 * MIB),
        // The group itself has none, the one above it has.
        ("cgroup_v2", 64 * MIB, 512 * MIB),
        // That of the machine.
        ("no_quota", 32 * MIB, 8_192 * MIB),
    ];
    for (fixture, used, limit) in table {
        let machine = Machine::new(fixture, "memory");
        let memory = machine.probe().memory();
        assert_eq!(memory, Memory::new(used, limit), "{fixture}");
    }
}

#[test]
fn a_limit_that_is_no_limit_is_that_of_the_machine() {
    let machine = Machine::new("cgroup_v1", "memory-unlimited");
    let probe = machine.probe();
    let file = "sys/fs/cgroup/memory/memory.limit_in_bytes";
    machine.write(file, "9223372036854771712\n");
    assert_eq!(probe.memory(), Memory::new(96 * MIB, 16_384 * MIB));
    machine.write(file, "much\n");
    assert_eq!(probe.memory(), None);
}

#[test]
fn memory_that_is_not_there_is_not_known() {
    let nowhere = SystemProbe::with("/no/such/machine", ManualClock::new());
    assert_eq!(nowhere.memory(), None);
    for (index, (file, is_known)) in [
        ("proc/self/status", false),
        // The limit of the group is enough.
        ("proc/meminfo", true),
        ("proc/self/mountinfo", false),
    ]
    .into_iter()
    .enumerate()
    {
        let machine = Machine::new("cgroup_v2", &format!("no-memory-{index}"));
        machine.remove(file);
        assert_eq!(machine.probe().memory().is_some(), is_known, "{file}");
    }
}

#[test]
fn without_a_quota_either_share_will_do() {
    for (index, (file, share)) in [
        ("proc/self/stat", Some(0.55)),
        ("proc/self/status", Some(0.55)),
        ("proc/stat", Some(0.25)),
        ("proc/self/cgroup", Some(0.55)),
    ]
    .into_iter()
    .enumerate()
    {
        let machine = Machine::new("no_quota", &format!("either-{index}"));
        let probe = machine.probe();
        machine.run(TEN_SECONDS, 1_000, [2_200, 1_800]);
        machine.remove(file);
        assert_eq!(probe.cpu(), share, "{file}");
    }
    let machine = Machine::new("no_quota", "neither");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 1_000, [2_200, 1_800]);
    machine.remove("proc/stat");
    machine.remove("proc/self/stat");
    assert_eq!(probe.cpu(), None);
    // A machine that has counted nothing meanwhile says nothing either.
    let machine = Machine::new("no_quota", "stands-still");
    let probe = machine.probe();
    machine.remove("proc/self/stat");
    machine.clock.advance(TEN_SECONDS);
    assert_eq!(probe.cpu(), None);
}

#[test]
fn malformed_text_is_unknown() {
    let quotas = [
        "",
        "max",
        "0 100000",
        "100000 0",
        "-5 100000",
        "x 100000",
        "1",
    ];
    for (index, quota) in quotas.into_iter().enumerate() {
        let machine = Machine::new("no_quota", &format!("odd-{index}"));
        machine.write("sys/fs/cgroup/cpu.max", quota);
        let probe = machine.probe();
        machine.run(TEN_SECONDS, 1_000, [2_200, 1_800]);
        assert_eq!(probe.cpu(), None, "{quota:?}");
        // And it recovers: the next two readings are a share again.
        machine.write("sys/fs/cgroup/cpu.max", "max 100000\n");
        machine.run(TEN_SECONDS, 1_000, [2_200, 1_800]);
        assert_share(&probe, 0.55);
    }
}

#[test]
fn what_cannot_be_read_is_not_taken_for_what_is_not_there() {
    let machine = Machine::new("no_quota", "unreadable");
    machine.remove("sys/fs/cgroup/cpu.max");
    machine.make("sys/fs/cgroup/cpu.max");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 1_000, [2_200, 1_800]);
    assert_eq!(probe.cpu(), None);
}

#[test]
fn a_counter_that_goes_back_is_not_known_for_once() {
    let machine = Machine::new("cgroup_v1", "restored");
    let probe = machine.probe();
    let text = machine.read("proc/self/stat");
    machine.run(TEN_SECONDS, 900, [4_000, 0]);
    assert_share(&probe, 0.6);
    machine.write("proc/self/stat", &text);
    machine.clock.advance(TEN_SECONDS);
    assert_eq!(probe.cpu(), None);
    machine.run(TEN_SECONDS, 300, [4_000, 0]);
    assert_share(&probe, 0.2);
}

/// How busy this machine is nobody knows before; only that it says so.
#[cfg(target_os = "linux")]
#[test]
fn this_machine_says_how_busy_it_is() {
    let own_ticks = || -> u64 {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<_> = fields.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let clock = ManualClock::new();
    let probe = SystemProbe::with("/", clock.clone());
    assert!(probe.load().is_some_and(|load| load >= 0.0));
    let start = own_ticks();
    while own_ticks() < start + 20 {
        std::hint::spin_loop();
    }
    clock.advance(Duration::from_secs(1));
    let cpu = probe.cpu().expect("a share");
    assert!(cpu > 0.0 && cpu <= 1.0, "{cpu}");
    let memory = probe.memory().expect("some memory");
    assert!(memory.used() > 0 && memory.used() < memory.limit());
}

#[test]
fn a_probe_by_hand_knows_only_what_can_be() {
    let probe = ManualProbe::new();
    for odd in [-0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        probe.set_load(2.5);
        probe.set_cpu(0.5);
        probe.set_load(odd);
        assert_eq!((probe.load(), probe.cpu()), (None, Some(0.5)), "{odd}");
        probe.set_load(0.0);
        probe.set_cpu(odd);
        assert_eq!((probe.load(), probe.cpu()), (Some(0.0), None), "{odd}");
    }
}

#[test]
fn a_probe_that_is_shared_says_the_same() {
    let machine = Machine::new("cgroup_v1", "shared");
    let probe = machine.probe();
    machine.run(TEN_SECONDS, 900, [4_000, 0]);
    let shared: Arc<dyn Probe> = Arc::new(probe);
    let said = (Probe::load(&shared), Probe::cpu(&shared));
    assert_eq!(said, (Some(3.41), Some(0.6)));
    let memory = Probe::memory(&shared);
    assert!(memory.is_some());
    assert_eq!(memory, machine.probe().memory());
}
