# frozen_string_literal: true

require "preloading"
require_relative "plain_ruby"

# A small program whose boot reads the disk and its environment in random ways, and prints the
# results. Random edits change these results.
class RandomWorld < Preloading::Application
  NAMES = %w[lib config config/deep lib/deep].freeze
  FILES = %w[a.rb b.rb c.yml d.txt .env].freeze
  # Changes that a boot may make to Ruby's own state. The command prints the state that it finds.
  CHANGES = [
    "Encoding.default_external = 'ISO-8859-1'", "Encoding.default_internal = 'UTF-8'",
    "STDIN.binmode.external_encoding", "STDOUT.set_encoding('UTF-16LE').external_encoding",
    "STDERR.set_encoding('UTF-8', 'ISO-8859-1').internal_encoding", "$0 = 'renamed'",
    "srand(7) && rand(99)", "[1, 2, 3].shuffle.size", "$/ = 'x'", "$VERBOSE = nil",
    "Warning[:experimental] = false", "ENV['TERM']", "ENV['COLUMNS'] ||= '7'",
    "RubyVM::InstructionSequence.compile_option = { frozen_string_literal: true }",
    "ENV['OLDPWD']", "ENV.keys.grep(/OLDPWD|SHLVL/).sort", "ENV.to_h['SHLVL']"
  ].freeze
  VARIABLES = %w[SAID a.rb d.txt TERM COLUMNS OLDPWD SHLVL].freeze
  MAIN = <<~'RUBY'
    require_relative "../config/environment"
    $stdout.set_encoding(nil, nil) if [(said = STDOUT.external_encoding), 1].last
    puts TOLD, ARGV, ENV["SAID"].inspect, said.inspect
    p Encoding.default_external, Encoding.default_internal, STDIN.external_encoding
    p STDERR.external_encoding, STDERR.internal_encoding, $0, $/, $VERBOSE
    p Random.seed < 2**64 && [Random.seed, rand(1000)], Warning[:experimental], ENV["TERM"]
    p RubyVM::InstructionSequence.compile_option[:frozen_string_literal], "".frozen?
  RUBY
  # Queries of a boot about a path, as expressions of `path`. All commands must get the same result,
  # so a folder's own times and the order of its names are left out.
  ASKED = [
    "File.exist?(path)", "File.file?(path)", "File.directory?(path)", "File.symlink?(path)",
    "File.ftype(path)", "File.executable?(path)", "FileTest.readable?(path)", "File.zero?(path)",
    "File.read(path)", "IO.binread(path)", "File.foreach(path).to_a", "File.size(path)",
    "File.file?(path) && File.mtime(path).to_r", "File.file?(path) && File.ctime(path).to_r",
    "File.stat(path).ino", "File.stat(path).mode", "File.lstat(path).mode", "File.readlink(path)",
    "File.realpath(path)", "Dir.children(path).sort", "Dir.empty?(path)", "Dir.exist?(path)",
    "Dir.entries(path).sort", "Dir.glob(path + '/*').sort", "Dir.glob(path + '/**/*').sort",
    "Dir.each_child(path).sort", "File.open(path) { |file| file.read(9) }",
    "File.open(path) { |file| file.stat.size if file.stat.file? }", "load(path)",
    "require(path)", "eval(File.read(path))", "test(?e, path)", "puts(path)", "warn(path)",
    "File.identical?(path, path + '/../d.txt')", "Pathname(path).exist?",
    "Pathname(path).children.map(&:to_s).sort", "Dir[path + '*'].sort",
    "ENV[File.basename(path)]", *CHANGES, "[require('yaml'), YAML.load_file(path).to_s].last"
  ].freeze
  # Queries of a boot to RubyGems.
  ASKED_OF_GEMS = [
    "require('one')", "require('two')", "gem('one')", "gem('two', '2')", "[ONE, TWO]",
    "Gem::Specification.find_all_by_name('one').map(&:full_name).sort",
    "Gem::Specification.find_by_name('two').full_gem_path", "Gem.loaded_specs.keys.sort",
    "Gem.find_files('one*').sort", "Gem::Specification.stubs.map(&:full_name).sort"
  ].freeze
  # A Ruby without RubyGems boots in a quarter of the time, and asks the disk as others do.
  WITH_GEMS_EVERY = 8
  # A file that was written less long ago makes a template stale, and none would be tried.
  SETTLED_SECONDS = 0.03
  # A template is made in a tenth of it. Where none is made, the steps go on without.
  TEMPLATE_SECONDS_MAX = 2
  ENVIRONMENT = <<~'RUBY'
    require "pathname"
    TOLD = []
    $LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
    def told(path)
      TOLD << yield(path).inspect
    rescue SystemCallError, ScriptError, StandardError => error
      TOLD << error.class
    end
  RUBY

  # `skipped` is a folder that templates do not compare.
  def initialize(seed, skipped: nil)
    @random = Random.new(seed)
    @has_gems = (seed % WITH_GEMS_EVERY).zero?
    @skipped = skipped
    @variables = {}
    @options = []
    @plain_rubies = {}
    @edited_at = now
    super()
    environment["GEM_PATH"] = path("gems")
    settle
  end

  def gems? = @has_gems

  def one_in?(count) = @random.rand(count).zero?

  def random_one(list) = list[@random.rand(list.size)]

  # Waits for the settling time after the last edit.
  def settle = sleep([0, SETTLED_SECONDS - (now - @edited_at)].max)

  # Returns the outputs of a plain run and of a preloaded run.
  def both
    @argument = "-#{@random.rand(3)}"
    @known = templates_and_refusals
    @said = preloaded(*words, @argument, env: @variables)
    [run_in_waiting_ruby, @said]
  end

  # The output of a plain run in a freshly started Ruby.
  def started_anew = plain(*words, @argument, env: @variables)

  # Waits for the template of the last command, if that command was booted.
  def wait_for_template
    return if @said.nil? || @said.forked?

    deadline = now + TEMPLATE_SECONDS_MAX
    sleep 0.01 until (templates_and_refusals - @known).any? || now > deadline
  end

  def remove
    @plain_rubies.each_value(&:end)
    super
  end

  # Makes a random change, and returns its name.
  def edit
    name = random_one(gems? ? EDITS + OF_GEMS : EDITS)
    send(name)
    name
  rescue SystemCallError => e
    "#{name}: #{e.class}"
  ensure
    @edited_at = now
  end

  EDITS = %i[put put grow same_size touch remove_file rename make_folder away link link_up mode
             replace swap branch variable option code hard].freeze
  OF_GEMS = %i[add_gem add_gem remove_gem].freeze

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def words = ["ruby", *("--disable-gems" unless gems?), *@options, "bin/rails"]

  def run_in_waiting_ruby
    with_streams do |*files|
      ruby = @plain_rubies[words] ||= PlainRuby.new(words, environment, folder)
      variables = ENV.to_h.merge(environment, @variables).compact
      status = ruby.run([@argument], variables, files)
      Preloading::Said.new(*files.drop(1).map { |file| File.read(file) }, status)
    end
  end

  # Commands run one after another, so all use the same files.
  def with_streams
    files = %w[in out err].map { |name| "#{@around}/#{name}" }
    FileUtils.touch(files.first)
    yield(*files)
  end

  # The sockets of templates and the refusals, each with its modification time.
  def templates_and_refusals
    Dir["#{@around}/run/thruway/preload/*.{socket,refusal}"].filter_map do |path|
      [path, File.stat(path).ctime]
    rescue Errno::ENOENT
      nil
    end
  end

  def fill
    NAMES.each { |name| FileUtils.mkdir_p(path(name)) }
    write("config.ru", "")
    write("config/application.rb", "")
    write("bin/rails", MAIN)
    8.times { edit }
    write_environment
  end

  def write_environment
    questions = Array.new(3 + @random.rand(20)) { question }
    write("config/environment.rb", [ENVIRONMENT, skip, *questions].join)
  end

  def skip
    return unless @skipped

    "require #{HOOKS.dump}\nThruway::Preload.exclude(#{path(@skipped).dump})\n"
  end

  HOOKS = File.expand_path("../../lib/thruway/preload", __dir__)

  def question
    asked = random_one(gems? && one_in?(3) ? ASKED_OF_GEMS : ASKED)
    "told(#{any.dump}) { |path| #{asked} }\n"
  end

  # Returns a name below the application that is not among the program's own files.
  def any
    one_in?(4) ? path(random_one(NAMES)) : file
  end

  def file = path("#{random_one(NAMES)}/#{random_one(FILES)}")

  def text = "#{random_one(%w[x y z])} = #{@random.rand(1000)}\n"

  def put = File.write(file, text)
  def grow = File.write(file, text, mode: "a")
  def remove_file = FileUtils.rm_f(file)
  def rename = File.rename(file, file)
  def away = FileUtils.rm_rf(path("lib/deep"))
  def make_folder = FileUtils.mkdir_p(file)
  def hard = File.link(file, file)
  def variable = @variables[random_one(VARIABLES)] = random_one([nil, "1", "2"])
  def option = @options = random_one([[], ["-W0"], ["-Ilib"], ["-w"]])
  def mode = File.chmod(random_one([0o644, 0o755, 0o600, 0o000]), file)
  def touch = File.utime(0, @random.rand(9), file)

  def same_size
    name = file
    time = File.mtime(name)
    File.write(name, @random.rand(10).to_s * File.size(name))
    File.utime(time, time, name)
  end

  # Saves a file as editors do.
  def replace
    File.write(path("lib/.saved"), text)
    File.rename(path("lib/.saved"), file)
  end

  def link
    name = file
    FileUtils.rm_rf(name)
    File.symlink(random_one([file, "d.txt", "../lib", path("lib/deep")]), name)
  end

  # A folder in the way to others leads elsewhere.
  def link_up
    FileUtils.rm_rf(path("lib/deep"))
    File.symlink(random_one([path("config/deep"), "../config"]), path("lib/deep"))
  end

  # Two folders change places.
  def swap
    File.rename(path("lib"), path("other"))
    File.rename(path("config/deep"), path("lib"))
    File.rename(path("other"), path("config/deep"))
  end

  # Changes files as git does: some disappear and others appear at once.
  def branch
    NAMES.each { |name| FileUtils.mkdir_p(path(name)) }
    FILES.each { |name| FileUtils.rm_rf(path("lib/#{name}")) }
    (1 + @random.rand(5)).times { put }
  end

  # A question more, or another program.
  def code
    return write_environment if one_in?(2)

    File.write(path("config/environment.rb"), question, mode: "a")
  end

  def gem_name = random_one(%w[one-1 one-2 two-2])

  # Adds a gem as `gem install` does: first the files, and then the specification.
  def add_gem
    name, version = (full_name = gem_name).split("-")
    write("gems/gems/#{full_name}/lib/#{name}.rb", "#{name.upcase} = #{@random.rand(9)}\n")
    write("gems/specifications/#{full_name}.gemspec", <<~RUBY)
      # stub: #{name} #{version} ruby lib
      Gem::Specification.new("#{name}", "#{version}") { |gem| gem.summary = "#{@random.rand(9)}" }
    RUBY
  end

  def remove_gem
    full_name = gem_name
    FileUtils.rm_f(path("gems/specifications/#{full_name}.gemspec"))
    FileUtils.rm_rf(path("gems/gems/#{full_name}"))
  end
end
