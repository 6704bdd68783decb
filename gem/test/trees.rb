# frozen_string_literal: true

require "fileutils"

# A random tree of features that require one another in all ways, and random edits of the tree. Some
# features are in several folders of the load path. The same seed yields the same tree and the same
# edits.
class Trees
  BASES = %w[lib0 lib1 lib2 link].freeze
  FEATURES = %w[a b c d deep/e deep/f deep/er/g h.i].freeze

  # `in_place` permits edits of files that leave their folder unchanged.
  def initialize(folder, random, in_place:)
    @folder = folder
    @random = random
    @in_place = in_place
    BASES.take(3).each { |base| FileUtils.mkdir_p("#{folder}/#{base}/deep/er") }
    FileUtils.mkdir_p("#{folder}/away/deep/er")
    File.symlink("away", "#{folder}/link")
    FEATURES.each { |feature| rand(3).succ.times { write(any_path(feature)) } }
    write_main
  end

  # Makes an edit, and describes it.
  def edit
    change, path = pick(%i[rewrite replace remove add retarget rename resize swap]), any_path
    send(change, path)
    "#{change} #{path}"
  end

  private

  def rand(limit) = @random.rand(limit)
  def pick(list) = list[rand(list.size)]

  # Returns a path in an existing base, because the link may lead nowhere.
  def any_path(feature = pick(FEATURES))
    base = pick(BASES.select { |name| File.directory?("#{@folder}/#{name}/deep/er") })
    "#{@folder}/#{base}/#{feature}.rb"
  end

  def write(path)
    text = Array.new(rand(5)) {
      statement
    }.unshift("puts \"#{rand(1000)} \#{__FILE__} \#{__dir__}\"")
    put(path, "#{text.join("\n")}\n")
  end

  def put(path, text)
    return File.write(path, text) if @in_place || !File.exist?(path)

    File.write("#{path}.new", text)
    File.rename("#{path}.new", path)
  end

  def write_main
    order = BASES.shuffle(random: @random).map { |base| "\"\#{__dir__}/#{base}\"" }
    put("#{@folder}/main.rb", <<~RUBY)
      $depth = 0
      at_exit do
        Dir["\#{__dir__}/*/made*.rb"].each { |path| File.unlink(path) }
        puts $LOADED_FEATURES, $LOAD_PATH
      end
      def try
        $depth += 1
        p yield if $depth < 40
      rescue StandardError, LoadError, SyntaxError => e
        puts e.class, e.message, e.backtrace.first(4)
      ensure
        $depth -= 1
      end
      $LOAD_PATH.unshift(#{order.join(", ")})
      #{Array.new(6) { statement }.join("\n")}
    RUBY
  end

  # A random statement of a feature. Some names are those of features that do not exist.
  def statement
    feature, base = pick(FEATURES + ["nowhere"]), pick(BASES)
    case rand(12)
    when 0..3 then "try { require #{pick([feature, "#{feature}.rb"]).inspect} }"
    when 4 then "try { require_relative #{pick(["../#{base}/#{feature}", feature]).inspect} }"
    when 5 then "try { load #{pick(["#{feature}.rb", "\#{__dir__}/#{feature}.rb"]).dump.gsub(
      "\\\#", "#"
    )} }"
    when 6 then "try { Object.autoload(:A#{rand(3)}, #{feature.inspect}) }\ntry { A#{rand(3)} }"
    when 7 then "A#{rand(3)} = #{rand(9)} unless Object.const_defined?(:A0)"
    when 8 then "try { $LOAD_PATH.rotate!(#{rand(3)}).size }"
    when 9 then "try { raise 'on purpose' }\nunused = 1 if $VERBOSE.nil?"
    when 10 then pick(["raise 'half way'", "def x(", "def quiet\n  warns = 1\nend", "# only words"])
    else made("made#{rand(2)}")
    end
  end

  # A feature that the program itself creates; `main.rb` removes the feature.
  def made(name)
    path = "\#{$LOAD_PATH.grep(/link|lib\\d/).last}/#{name}.rb"
    "try { require #{name.inspect} }\n" \
      "try { File.write(\"#{path}\", \"puts __FILE__\") }\ntry { require #{name.inspect} }"
  end

  def rewrite(path) = write(path)
  def add(path) = write(path)
  def remove(path) = FileUtils.rm_f(path)

  # Another file of the same size, and where that may be noticed, of the same time.
  def replace(path)
    return write(path) unless File.file?(path)

    time, text = File.mtime(path), File.read(path)
    put(path, text.sub(/\d+/) { |digits| digits.succ[0, digits.size] })
    File.utime(time, time, path) if @in_place
  end

  def retarget(_path)
    File.unlink("#{@folder}/link")
    File.symlink(pick(%w[away lib1 nothing]), "#{@folder}/link")
  end

  def rename(path)
    other = any_path
    File.rename(path, other) if File.file?(path) && File.directory?(File.dirname(other))
  end

  # A file becomes a link.
  def swap(path)
    return unless File.file?(path)

    File.rename(path, "#{@folder}/away/moved.rb")
    File.symlink("#{@folder}/away/moved.rb", path)
  end

  def resize(path)
    File.open(path, "a") { |file| file.puts("# more") } if @in_place && File.file?(path)
  end
end
