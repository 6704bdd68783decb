# frozen_string_literal: true

require "preloading"

# A small program whose boot asks the disk and its environment in random ways, and prints what it
# was told. Edits at random change what it would be told.
class RandomWorld < Preloading::Application
  NAMES = %w[lib config config/deep lib/deep].freeze
  FILES = %w[a.rb b.rb c.yml d.txt .env].freeze
  # What a boot may ask of a path, as an expression of `path`. One command is told the same as the
  # next, so a folder's own times and the order of its names are left out.
  ASKED = [
    "File.exist?(path)", "File.file?(path)", "File.directory?(path)", "File.symlink?(path)",
    "File.ftype(path)", "File.executable?(path)", "FileTest.readable?(path)", "File.zero?(path)",
    "File.read(path)", "IO.binread(path)", "File.foreach(path).to_a", "File.size(path)",
    "File.file?(path) && File.mtime(path).to_r", "File.file?(path) && File.ctime(path).to_r",
    "File.stat(path).ino", "File.stat(path).mode", "File.lstat(path).mode", "File.readlink(path)",
    "File.realpath(path)", "Dir.children(path).sort", "Dir.empty?(path)", "Dir.exist?(path)",
    "Dir.entries(path).sort", "Dir.glob(path + '/*').sort", "Dir.glob(path + '/**/*').sort",
    "Dir.each_child(path).sort", "File.open(path) { |file| file.read(9) }",
    "File.open(path) { |file| file.stat.size if file.stat.file? }", "YAML.load_file(path).to_s",
    "load(path)", "require(path)", "eval(File.read(path))",
    "File.identical?(path, path + '/../d.txt')", "Pathname(path).exist?",
    "Pathname(path).children.map(&:to_s).sort", "test(?e, path)", "Dir[path + '*'].sort",
    "ENV[File.basename(path)]"
  ].freeze
  ENVIRONMENT = <<~'RUBY'
    require "pathname"
    require "yaml"
    TOLD = []
    $LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
    def told(path)
      TOLD << yield(path).inspect
    rescue SystemCallError, ScriptError, StandardError => error
      TOLD << error.class
    end
  RUBY

  attr_reader :variables

  # `skipped` is a folder that templates do not compare.
  def initialize(random, skipped: nil)
    @random = random
    @skipped = skipped
    @variables = {}
    @options = []
    super()
    settle
  end

  # A file that was written a moment ago makes a template stale, and none would be tried.
  def settle = sleep(0.03)

  # What a plain run says, and a preloaded one.
  def both
    words = ["ruby", *options, "main.rb", @random.rand(3).to_s]
    [plain(*words, env: variables), preloaded(*words, env: variables)]
  end

  def fork_now = forked("ruby", *options, "main.rb", "0", env: variables)

  # One change at random; answers with its name.
  def edit
    name = EDITS[@random.rand(EDITS.size)]
    send(name)
    name
  rescue SystemCallError => e
    "#{name}: #{e.class}"
  end

  EDITS = %i[put put grow same_size touch remove_file rename make_folder away link link_up mode
             replace swap branch variable option code hard].freeze

  private

  attr_reader :options

  def fill
    NAMES.each { |name| FileUtils.mkdir_p(path(name)) }
    write("config.ru", "")
    write("main.rb", "require_relative 'config/environment'\nputs TOLD, ARGV, ENV['SAID']\n")
    8.times { edit }
    questions = Array.new(3 + @random.rand(20)) { question }
    write("config/environment.rb", [ENVIRONMENT, skip, *questions].join)
  end

  def skip
    return unless @skipped

    "require #{HOOKS.dump}\nThruway::Preload.exclude(#{path(@skipped).dump})\n"
  end

  HOOKS = File.expand_path("../../lib/thruway/preload", __dir__)

  def question
    asked = ASKED[@random.rand(ASKED.size)]
    "told(#{any.dump}) { |path| #{asked} }\n"
  end

  # A name below the application that the program's own files are not.
  def any
    folder = NAMES[@random.rand(NAMES.size)]
    @random.rand(4).zero? ? path(folder) : path("#{folder}/#{FILES[@random.rand(FILES.size)]}")
  end

  def file = path("#{NAMES[@random.rand(NAMES.size)]}/#{FILES[@random.rand(FILES.size)]}")

  def text = "#{%w[x y z][@random.rand(3)]} = #{@random.rand(1000)}\n"

  def put = File.write(file, text)
  def grow = File.write(file, text, mode: "a")
  def remove_file = FileUtils.rm_f(file)
  def rename = File.rename(file, file)
  def away = FileUtils.rm_rf(path("lib/deep"))
  def make_folder = FileUtils.mkdir_p(file)
  def hard = File.link(file, file)
  def variable = @variables[%w[SAID a.rb d.txt][@random.rand(3)]] = [nil, "1", "2"][@random.rand(3)]
  def option = @options = [[], ["-W0"], ["-Ilib"], ["-w"]][@random.rand(4)]
  def mode = File.chmod([0o644, 0o755, 0o600, 0o000][@random.rand(4)], file)
  def touch = File.utime(0, @random.rand(9), file)

  def same_size
    name = file
    time = File.mtime(name)
    File.write(name, @random.rand(10).to_s * File.size(name))
    File.utime(time, time, name)
  end

  # As editors save.
  def replace
    File.write(path("lib/.saved"), text)
    File.rename(path("lib/.saved"), file)
  end

  def link
    name = file
    FileUtils.rm_rf(name)
    File.symlink([file, "d.txt", "../lib", path("lib/deep")][@random.rand(4)], name)
  end

  # A folder in the way to others leads elsewhere.
  def link_up
    FileUtils.rm_rf(path("lib/deep"))
    File.symlink([path("config/deep"), "../config"][@random.rand(2)], path("lib/deep"))
  end

  # Two folders change places.
  def swap
    File.rename(path("lib"), path("other"))
    File.rename(path("config/deep"), path("lib"))
    File.rename(path("other"), path("config/deep"))
  end

  # As git does it: some files go, others come, at once.
  def branch
    NAMES.each { |name| FileUtils.mkdir_p(path(name)) }
    FILES.each { |name| FileUtils.rm_rf(path("lib/#{name}")) }
    (1 + @random.rand(5)).times { put }
  end

  def code = File.write(path("config/environment.rb"), question, mode: "a")
end
