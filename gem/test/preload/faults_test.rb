# frozen_string_literal: true

require "preloading"

# Templates, clients and commands that end unexpectedly.
class PreloadFaultsTest < Minitest::Test
  include Preloading

  WORDS = %w[bin/rails runner].freeze

  def start(made, code)
    streams = { in: File::NULL, out: File::NULL, err: File::NULL }
    command = [THRUWAY, "run", "--preload", "--", *WORDS, code]
    spawn(made.environment, *command, chdir: made.folder, **streams)
  end

  # Returns the process number that a command writes at its start.
  def process_of(made)
    Integer(made.await_file("tmp/process")).tap { File.delete(made.path("tmp/process")) }
  end

  def status_of(client) = Preloading.status_of(client, "a client")

  def templates(made) = made.templates.map { |template| template["process"] }

  def parent_of(process) = File.read("/proc/#{process}/status")[/^PPid:\s+(\d+)/, 1].to_i

  def tell = "File.write('tmp/process', Process.pid)"

  # Starts a client that waits for a stopped template.
  def asking(made, template, code)
    Process.kill(:STOP, template)
    start(made, code).tap do |client|
      Preloading.await("a client that waits") { connected?(client) && sleeping?(client) }
    end
  end

  def sleeping?(process) = File.read("/proc/#{process}/status").match?(/^State:\s+S/)

  def connected?(process)
    Dir["/proc/#{process}/fd/*"].any? { |file| File.readlink(file).start_with?("socket:") }
  rescue Errno::ENOENT
    # A file was closed between the two looks.
    false
  end

  # Returns the number of times that a process has gone to sleep.
  def sleeps_of(process)
    File.read("/proc/#{process}/status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1]
  end

  def with_template
    application do |made|
      made.forked(*WORDS, "0")
      yield made
    end
  end

  def test_a_client_that_is_killed_takes_its_command_along
    with_template do |made|
      client = start(made, "#{tell}; sleep")
      command = process_of(made)
      Process.kill(:KILL, client)
      status_of(client)
      assert_ends(command)
    end
  end

  def test_signals_to_the_client_reach_the_command
    with_template do |made|
      client = start(made, "trap(:USR1) { exit 9 }; #{tell}; sleep")
      process_of(made)
      Process.kill(:USR1, client)
      assert_equal 9, status_of(client).exitstatus
      client = start(made, "#{tell}; sleep")
      process_of(made)
      Process.kill(:TERM, client)
      assert_equal 15, status_of(client).termsig
    end
  end

  def test_all_signals_to_the_client_reach_the_command
    with_template do |made|
      # Ruby keeps the others for itself.
      names = %w[ABRT ALRM IO PROF PWR SYS TRAP TTIN TTOU URG XCPU]
      traps = "#{names}.each { |name| trap(name) { File.write('tmp/process', $$) } }"
      client = start(made, "#{traps}; #{tell}; loop { sleep }")
      process_of(made)
      names.each do |name|
        Process.kill(name, client)
        process_of(made)
      end
      Process.kill(:TERM, client)
      assert_equal 15, status_of(client).termsig
    end
  end

  def test_a_template_that_is_being_made_is_told_to_stop
    application do |made|
      made.write("config/initializers/slow.rb", <<~'RUBY')
        File.write("tmp/known", "#{$$}\n", mode: "a")
        sleep 1 unless File.foreach("tmp/known").one?
      RUBY
      made.preloaded(*WORDS, "0")
      template = Preloading.await("the template") { File.readlines(made.path("tmp/known"))[1] }
      made.thruway("preload", "stop")
      assert_ends(Integer(template))
      assert_empty made.templates
    end
  end

  def test_a_low_limit_of_descriptors
    application do |made|
      preload = "#{THRUWAY} run --preload --explain -- bin/rails runner 'puts 1'"
      Preloading.await("a fork") do
        said = made.plain("bash", "-c", "ulimit -n 40; exec #{preload}", close_others: true)
        assert_equal "1\n", said.out
        said.err.include?("forked from template")
      end
    end
  end

  # A busy machine may let the command begin, and end, before its client runs again.
  def test_a_signal_before_the_client_has_read_that_its_command_runs_is_for_the_command
    with_template do |made|
      template = templates(made).first
      client = asking(made, template, "trap(:INT) { exit 9 }; #{tell}; sleep")
      Process.kill(:STOP, client)
      Process.kill(:CONT, template)
      process_of(made)
      Process.kill(:INT, client)
      Process.kill(:CONT, client)
      assert_equal 9, status_of(client).exitstatus
    end
  end

  def test_a_signal_before_the_template_answers_is_for_the_client
    with_template do |made|
      template = templates(made).first
      client = asking(made, template, tell)
      Process.kill(:INT, client)
      assert_equal 2, status_of(client).termsig
      Process.kill(:CONT, template)
      assert_equal "1\n", made.preloaded(*WORDS, "puts 1").out
      refute_path_exists made.path("tmp/process")
    end
  end

  def test_a_template_that_is_killed_is_made_anew
    with_template do |made|
      template = templates(made).first
      client = start(made, "#{tell}; sleep 0.02 until File.exist?('tmp/go')")
      command = process_of(made)
      assert_equal template, parent_of(command)
      Process.kill(:KILL, template)
      assert_ends(template)
      made.write("tmp/go", "")
      assert_equal 2, status_of(client).exitstatus
      assert_ends(command)
      assert_equal "1\n", made.forked(*WORDS, "puts 1").out
    end
  end

  # The first client learns of the change, and the template ends. The template still attends to a
  # command at that time.
  def test_all_clients_that_come_as_a_template_ends_boot
    with_template do |made|
      template = templates(made).first
      client = start(made, "#{tell}; sleep 0.02 until File.exist?('tmp/go')")
      process_of(made)
      File.write(made.path("config/environment.rb"), "\n", mode: "a")
      Process.kill(:STOP, template)
      late = Array.new(3) { Thread.new { made.preloaded(*WORDS, "puts 1") } }
      sleep 0.3
      Process.kill(:CONT, template)
      said = late.map { |one| one.join(Preloading::PATIENCE_SECONDS)&.value&.out }
      made.write("tmp/go", "")
      assert_equal ["1\n"] * 3, said
      assert_predicate status_of(client), :success?
    end
  end

  def test_a_template_that_is_stopped_lets_its_commands_end
    with_template do |made|
      client = start(made, "#{tell}; sleep 0.02 until File.exist?('tmp/go'); exit 3")
      process_of(made)
      made.thruway("preload", "stop")
      assert_empty made.templates
      made.write("tmp/go", "")
      assert_equal 3, status_of(client).exitstatus
    end
  end

  def test_a_template_sleeps_and_ends_when_it_is_told
    with_template do |made|
      template = templates(made).first
      # The template attends to the client that has just gone, and is then idle.
      Preloading.await("a template that sleeps") do
        before = sleeps_of(template)
        sleep 0.5
        before == sleeps_of(template)
      end
      Process.kill(:TERM, template)
      assert_ends(template)
      assert_equal "1\n", made.forked(*WORDS, "puts 1").out
    end
  end

  def test_many_clients_at_once
    with_template do |made|
      before = templates(made)
      said = Array.new(50) { |n| Thread.new { made.preloaded(*WORDS, "puts #{n}") } }.map(&:value)
      assert_equal (0...50).map { |n| "#{n}\n" }, said.map(&:out)
      assert_equal before, templates(made)
    end
  end

  def test_many_first_runs_make_one_template
    application do |made|
      said = Array.new(6) { |n| Thread.new { made.preloaded(*WORDS, "puts #{n}") } }.map(&:value)
      assert_equal (0...6).map { |n| "#{n}\n" }, said.map(&:out)
      made.await_template
      assert_equal 1, made.templates.size
    end
  end

  def test_nothing_survives_its_folder
    with_template do |made|
      template = made.templates.first["process"]
      FileUtils.rm_rf(made.folder)
      Dir.mkdir(made.folder)
      # A new folder of that name is a different folder.
      said = made.preloaded("ruby", "-e", "puts 1")
      assert_equal "1\n", said.out
      made.thruway("preload", "stop", "--all")
      assert_ends(template)
    end
  end

  # The place for templates has no room: commands are booted, and nothing is said but by --explain.
  def test_a_full_disk
    return pass unless Process.euid.zero?

    application do |made|
      run = made.environment["XDG_RUNTIME_DIR"]
      assert system("mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "preload-test", run)
      begin
        3.times do
          said = made.preloaded(*WORDS, "puts 1; exit 3")
          assert_equal ["1\n", "", 3], [said.out, said.err, said.status.exitstatus], said.how
          refute_predicate said, :forked?
        end
        assert_empty made.templates
      ensure
        system("umount", run)
      end
    end
  end

  # The template is killed between the fork and its report of the fork.
  def test_a_template_that_is_killed_right_after_a_fork
    application do |made|
      made.write("config/initializers/killed.rb", <<~'RUBY')
        Process.singleton_class.prepend(Module.new do
          def _fork = super.tap { |child| Process.kill(:KILL, Process.pid) if child.positive? }
        end)
      RUBY
      run = [*WORDS, "File.write('tmp/runs', 'x', mode: 'a'); puts 1"]
      made.preloaded(*run)
      made.await_template
      FileUtils.rm_f(made.path("tmp/runs"))
      assert_ran_once(made, made.preloaded(*run), "1\n")
    end
  end

  # Whenever a template ends, its clients' commands have run or are booted; none is lost, none runs
  # twice.
  def test_a_template_that_is_killed_at_any_time
    with_template do |made|
      random = Random.new(1)
      10.times do |number|
        made.forked(*WORDS, "0") if made.templates.empty?
        process = templates(made).first or next
        killer = Thread.new { sleep(random.rand(0.05)); Process.kill(:KILL, process) }
        said = made.preloaded(*WORDS, "File.write('tmp/runs', 'x', mode: 'a'); puts #{number}")
        killer.join
        assert_ran_once(made, said, "#{number}\n")
      end
    end
  end

  private

  # A command whose template is killed may be unable to report its end.
  def assert_ran_once(made, said, expected)
    runs = File.exist?(made.path("tmp/runs")) ? File.read(made.path("tmp/runs")) : ""
    FileUtils.rm_f(made.path("tmp/runs"))
    return assert_equal([expected, "x"], [said.out, runs], said.how) if said.status.success?

    assert_equal 2, said.status.exitstatus, said.to_s
    assert_operator runs.size, :<=, 1
  end
end
